#include "tensor/experts.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvikk {

namespace {

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Panels of one task: few rows stream a matrix from memory, many reuse a pair of panels.
size_t task_panels(const Matrix& matrix, size_t rows) {
  constexpr size_t kTaskBytes = 64 * 1024;
  constexpr size_t kStreams = 4;  // panels that kernels of few rows read side by side
  if (rows >= kRowBlock) return 2;
  return std::max(kStreams, round_up(kTaskBytes / matrix.panel_bytes(), kStreams));
}

void add_bias(const Kernels& kernels, const std::vector<float>& bias, float* x) {
  if (!bias.empty()) kernels.add(x, bias.data(), bias.size());
}

}  // namespace

Result<ExpertMixture> ExpertMixture::create(const ExpertShape& shape, size_t rows_max) {
  CHECK(shape.chosen >= 1 && shape.chosen <= shape.experts);
  ExpertMixture m;
  m.shape_ = shape;
  const size_t choices = rows_max * shape.chosen;
  const size_t slots = choices + std::min(choices, shape.experts) * (kRowBlock - 1);
  const auto floats = [](size_t n) { return Buffer::allocate(n * sizeof(float)); };
  m.group_of_slot_.resize(slots);
  m.slot_of_choice_.resize(choices);
  m.counts_.resize(shape.experts);
  m.groups_.reserve(shape.experts);
  m.first_task_.reserve(2 * shape.experts + 1);
  TRY_ASSIGN(m.in_, Activations::allocate(slots, shape.hidden));
  TRY_ASSIGN(m.inner_, Activations::allocate(slots, shape.width));
  m.in_.shape(slots, shape.hidden);
  m.inner_.shape(slots, shape.width);
  TRY_ASSIGN(m.gate_, floats(slots * round_up(shape.width, kPanelRows)));
  TRY_ASSIGN(m.up_, floats(slots * round_up(shape.width, kPanelRows)));
  TRY_ASSIGN(m.out_, floats(slots * round_up(shape.hidden, kPanelRows)));
  return m;
}

void ExpertMixture::run(Compute& compute, const Call& call) {
  CHECK(call.experts.size() == shape_.experts);
  CHECK(call.choices.size() <= slot_of_choice_.size());
  CHECK(call.choices.size() % shape_.chosen == 0);
  group_choices(call.choices);
  gather(compute, call);
  constexpr Matrix Expert::*kInner[] = {&Expert::gate, &Expert::up};
  float* const inner[] = {gate_.as<float>(), up_.as<float>()};
  multiply(compute, call, in_, kInner, inner, round_up(shape_.width, kPanelRows));
  activate(compute, call);
  constexpr Matrix Expert::*kOuter[] = {&Expert::down};
  float* const outer[] = {out_.as<float>()};
  multiply(compute, call, inner_, kOuter, outer, round_up(shape_.hidden, kPanelRows));
  combine(compute, call);
}

// Counting sort of the choices by expert; rows stay in order inside a group.
void ExpertMixture::group_choices(std::span<const ExpertChoice> choices) {
  std::fill(counts_.begin(), counts_.end(), size_t{0});
  for (const ExpertChoice& choice : choices) {
    CHECK(choice.expert < shape_.experts);
    ++counts_[choice.expert];
  }
  groups_.clear();
  size_t slot = 0;
  for (size_t e = 0; e < shape_.experts; ++e) {
    if (counts_[e] == 0) continue;
    const size_t rows = counts_[e];
    std::fill_n(group_of_slot_.begin() + static_cast<ptrdiff_t>(slot), rows,
                static_cast<uint32_t>(groups_.size()));
    groups_.push_back({static_cast<uint32_t>(e), slot, rows});
    counts_[e] = slot;  // from here on: the expert's next free slot
    slot += round_up(rows, kRowBlock);
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    slot_of_choice_[i] = static_cast<uint32_t>(counts_[choices[i].expert]++);
  }
}

void ExpertMixture::gather(Compute& compute, const Call& call) {
  const Kernels& kernels = compute.kernels();
  compute.pool().parallel_for(call.choices.size(), [&](size_t i, int) {
    const size_t slot = slot_of_choice_[i];
    const Group& group = groups_[group_of_slot_[slot]];
    float* row = in_.row(slot);
    std::memcpy(row, call.x + i / shape_.chosen * call.x_stride, shape_.hidden * sizeof(float));
    const Expert& expert = call.experts[group.expert];
    if (expert.gate.quantized() || expert.up.quantized()) {
      kernels.quantize_row(row, slot - group.first, in_.view(group.first, group.rows).quantized);
    }
  });
}

void ExpertMixture::activate(Compute& compute, const Call& call) {
  const Kernels& kernels = compute.kernels();
  const size_t stride = round_up(shape_.width, kPanelRows);
  compute.pool().parallel_for(call.choices.size(), [&](size_t i, int) {
    const size_t slot = slot_of_choice_[i];
    const Group& group = groups_[group_of_slot_[slot]];
    const Expert& expert = call.experts[group.expert];
    float* gate = gate_.as<float>() + slot * stride;
    float* up = up_.as<float>() + slot * stride;
    add_bias(kernels, expert.gate_bias, gate);
    add_bias(kernels, expert.up_bias, up);
    (*call.activation)(gate, up, shape_.width, inner_.row(slot));
    if (expert.down.quantized()) {
      kernels.quantize_row(inner_.row(slot), slot - group.first,
                           inner_.view(group.first, group.rows).quantized);
    }
  });
}

void ExpertMixture::combine(Compute& compute, const Call& call) {
  const Kernels& kernels = compute.kernels();
  const size_t stride = round_up(shape_.hidden, kPanelRows);
  compute.pool().parallel_for(call.choices.size() / shape_.chosen, [&](size_t row, int) {
    float* y = call.y + row * call.y_stride;
    std::fill_n(y, shape_.hidden, 0.0f);
    for (size_t i = row * shape_.chosen; i < (row + 1) * shape_.chosen; ++i) {
      const ExpertChoice& choice = call.choices[i];
      float* out = out_.as<float>() + slot_of_choice_[i] * stride;
      add_bias(kernels, call.experts[choice.expert].down_bias, out);
      for (size_t d = 0; d < shape_.hidden; ++d) y[d] += choice.weight * out[d];
    }
  });
}

void ExpertMixture::multiply(Compute& compute, const Call& call, const Activations& x,
                             std::span<Matrix Expert::*const> matrices,
                             std::span<float* const> outputs, size_t stride) {
  first_task_.assign(1, 0);
  for (const Group& group : groups_) {
    for (const auto& member : matrices) {
      const Matrix& matrix = call.experts[group.expert].*member;
      CHECK(matrix.inputs == x.k());
      CHECK(matrix.panel_count() * kPanelRows <= stride);
      count_product(compute, matrix, group.rows, matrix.panel_count());
      const size_t chunk = task_panels(matrix, group.rows);
      first_task_.push_back(first_task_.back() + (matrix.panel_count() + chunk - 1) / chunk);
    }
  }
  compute.pool().parallel_for(first_task_.back(), [&](size_t task, int thread) {
    const auto after = std::upper_bound(first_task_.begin(), first_task_.end(), task);
    const size_t product = static_cast<size_t>(after - first_task_.begin()) - 1;
    const Group& group = groups_[product / matrices.size()];
    const size_t which = product % matrices.size();
    const Matrix& matrix = call.experts[group.expert].*matrices[which];
    const size_t chunk = task_panels(matrix, group.rows);
    const size_t begin = (task - first_task_[product]) * chunk;
    const size_t end = std::min(begin + chunk, matrix.panel_count());
    multiply_panels(compute, x.view(group.first, group.rows),
                    {&matrix, outputs[which] + group.first * stride, stride}, begin, end, thread);
  });
}

}  // namespace kvikk
