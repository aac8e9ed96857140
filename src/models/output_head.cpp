#include "models/output_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/float16.h"
#include "weights/block_formats.h"
#include "weights/half_round.h"
#include "weights/pack.h"
#include "weights/tensor_rows.h"

namespace kvikk {

namespace {

constexpr DType kCopyType = DType::kQ4_0;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kNoBound = std::numeric_limits<float>::max();
constexpr size_t kPanelsPerTask = 256;
constexpr size_t kPanelsPerSlice = 2048;  // read before their pages of the file are given back
// When a third of the panels may hold the top, the full product streams them faster; so it does for
// the next steps, which are likely to be alike.
constexpr size_t kPartMax = 3;
constexpr size_t kStepsAfterMiss = 15;

// A Q4_0 block of a group of 32; the sum of the squares of what rounding took goes to `rest`.
// Returns false if the scale is too large for float16.
bool round_group(const float* x, uint8_t* block, float& rest) {
  float low = 0.0f;
  float high = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  const uint16_t bits = float_to_half((high > -low ? high : low) / -8.0f);
  const float scale = half_to_float(bits);
  const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  int32_t codes[kGroup];
  rest = 0.0f;
  for (size_t i = 0; i < kGroup; ++i) {
    codes[i] = std::clamp(static_cast<int32_t>(x[i] * inverse + 8.5f), 0, 15);
    const float difference = x[i] - static_cast<float>(codes[i] - 8) * scale;
    rest += difference * difference;
  }
  std::memcpy(block, &bits, sizeof bits);
  for (size_t i = 0; i < kGroup / 2; ++i) {
    block[2 + i] = static_cast<uint8_t>(codes[i] | codes[i + kGroup / 2] << 4);
  }
  return std::isfinite(scale);
}

}  // namespace

Result<OutputHead> OutputHead::create(const Matrix& full, const StoredTensor* tensor,
                                      ThreadPool& pool, size_t rows_max,
                                      const std::function<void()>& release) {
  OutputHead head;
  head.full_ = full;
  Matrix copy = full;
  copy.format = panel_format_of(kCopyType);
  if (tensor == nullptr || !full.quantized() || full.inputs % kGroup != 0 ||
      panel_format_of(stored_row_type(*tensor)) != full.format ||
      copy.panel_bytes() * 5 > full.panel_bytes() * 3) {
    return head;
  }
  const size_t panels = full.panel_count();
  const size_t groups = full.inputs / kGroup;
  TRY_ASSIGN(head.copy_memory_, Buffer::allocate(copy.bytes()));
  TRY_ASSIGN(head.approximate_, Buffer::allocate(rows_max * panels * kPanelRows * sizeof(float)));
  TRY_ASSIGN(Buffer panel_shares, Buffer::allocate(panels * groups * sizeof(float)));
  copy.panels = head.copy_memory_.data();
  head.copy_ = copy;
  head.rest_.resize(panels * kPanelRows);
  head.spreads_.resize(rows_max);
  head.order_.resize(panels);
  head.first_.reserve(std::min(rows_max * kTopMax, panels));
  head.sorted_.reserve(std::min(rows_max * kTopMax, panels) * kPanelRows);
  head.largest_.resize(rows_max * panels);
  head.upper_.resize(rows_max * panels);
  head.tasks_.resize(panels);
  for (size_t first = 0; first < panels; first += kPanelsPerSlice) {
    pool.parallel_for(std::min(kPanelsPerSlice, panels - first), [&](size_t i, int) {
      const size_t panel = first + i;
      head.copy_panel(*tensor, panel, panel_shares.as<float>() + panel * groups);
    });
    if (release) release();
  }
  std::vector<double> sums(groups);
  double total = 0;
  for (size_t i = 0; i < panels * groups; ++i) {
    sums[i % groups] += panel_shares.as<float>()[i];
    total += panel_shares.as<float>()[i];
  }
  for (const double sum : sums) {
    head.shares_.push_back(total > 0 ? static_cast<float>(sum / total) : 0.0f);
  }
  return head;
}

// Quantizes the rows of a panel, and measures what that leaves: rest_ of each row, and the groups'
// parts of it, summed over the rows, into `shares` [groups].
void OutputHead::copy_panel(const StoredTensor& tensor, size_t panel, float* shares) {
  const size_t k = full_.inputs;
  const size_t block_bytes = row_bytes(kCopyType, kGroup);
  const size_t blocks = row_bytes(kCopyType, k);
  std::vector<float> exact(k);
  std::vector<uint8_t> rows(kPanelRows * blocks);
  const uint8_t* pointers[kPanelRows] = {};
  std::fill(shares, shares + k / kGroup, 0.0f);
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    const size_t row = panel * kPanelRows + lane;
    if (row >= full_.outputs) continue;
    uint8_t* const target = rows.data() + lane * blocks;
    pointers[lane] = target;
    read_row(tensor, row, exact.data());
    double sum = 0;
    bool fits = true;
    for (size_t g = 0; g < k / kGroup; ++g) {
      float rest = 0;
      fits = round_group(exact.data() + g * kGroup, target + g * block_bytes, rest) && fits;
      sum += rest;
      shares[g] += rest;
    }
    // A row that does not fit has bounds without end: it is always computed in full.
    rest_[row] = fits ? static_cast<float>(std::sqrt(sum)) : kNoBound;
    if (!fits) {
      std::fill(target, target + blocks, uint8_t{0});
      std::fill(shares, shares + k / kGroup, 0.0f);
    }
  }
  auto* const bytes = const_cast<uint8_t*>(copy_.panels) + panel * copy_.panel_bytes();
  CHECK(pack_panel(kCopyType, pointers, k, bytes));
}

// What a row's rest_ is multiplied with to be its standard deviation.
float OutputHead::spread(const float* x) const {
  double sum = 0;
  for (size_t g = 0; g < shares_.size(); ++g) {
    double square = 0;
    for (size_t i = 0; i < kGroup; ++i) {
      const double value = x[g * kGroup + i];
      square += value * value;
    }
    sum += shares_[g] * square / kGroup;
  }
  return static_cast<float>(std::sqrt(sum));
}

// The largest approximate logit and the largest upper bound in each panel.
void OutputHead::bound(Compute& compute, size_t rows) {
  const size_t panels = full_.panel_count();
  const size_t pieces = (panels + kPanelsPerTask - 1) / kPanelsPerTask;
  compute.pool().parallel_for(rows * pieces, [&](size_t piece, int) {
    const size_t r = piece / pieces;
    const size_t begin = piece % pieces * kPanelsPerTask;
    const size_t end = std::min(begin + kPanelsPerTask, panels);
    const float width = static_cast<float>(kMargin) * spreads_[r];
    const float* const row = approximate_.as<float>() + r * panels * kPanelRows;
    for (size_t panel = begin; panel < end; ++panel) {
      const size_t lanes = std::min(kPanelRows, full_.outputs - panel * kPanelRows);
      float largest = kMinusInfinity;
      float high = kMinusInfinity;
      for (size_t i = panel * kPanelRows; i < panel * kPanelRows + lanes; ++i) {
        largest = std::max(largest, row[i]);
        high = std::max(high, row[i] + width * rest_[i]);
      }
      largest_[r * panels + panel] = largest;
      upper_[r * panels + panel] = high;
    }
  });
}

// Step 2: for each row the `top` panels with the largest approximate logits.
void OutputHead::choose_first(size_t rows, size_t top) {
  const size_t panels = full_.panel_count();
  std::fill(tasks_.begin(), tasks_.end(), PanelTask::kKeep);
  first_.clear();
  for (size_t r = 0; r < rows; ++r) {
    for (size_t p = 0; p < panels; ++p) {
      order_[p] = {largest_[r * panels + p], static_cast<uint32_t>(p)};
    }
    std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(top - 1), order_.end(),
                     std::greater<>());
    for (size_t i = 0; i < top; ++i) {
      PanelTask& task = tasks_[order_[i].second];
      if (task == PanelTask::kKeep) first_.push_back(order_[i].second);
      task = PanelTask::kCompute;
    }
  }
}

// The top-th largest of the logits computed so far: not above the row's true one.
float OutputHead::threshold(const float* y, size_t top) {
  sorted_.clear();
  for (const uint32_t panel : first_) {
    const size_t begin = panel * kPanelRows;
    const size_t end = std::min(begin + kPanelRows, full_.outputs);
    sorted_.insert(sorted_.end(), y + begin, y + end);
  }
  const auto at = sorted_.begin() + static_cast<ptrdiff_t>(std::min(top, sorted_.size()) - 1);
  std::nth_element(sorted_.begin(), at, sorted_.end(), std::greater<>());
  return sorted_.size() < top ? kMinusInfinity : *at;
}

// Step 3: marks the panels that may reach the threshold; returns how many were marked.
size_t OutputHead::choose_rest(size_t row, float threshold) {
  const size_t panels = full_.panel_count();
  size_t chosen = 0;
  for (size_t p = 0; p < panels; ++p) {
    if (tasks_[p] == PanelTask::kFill && upper_[row * panels + p] >= threshold) {
      tasks_[p] = PanelTask::kCompute;
      ++chosen;
    }
  }
  return chosen;
}

void OutputHead::run(Compute& compute, const Activations& x, size_t top, float* y,
                     size_t y_stride) {
  const Product product = {&full_, y, y_stride};
  const size_t panels = full_.panel_count();
  const size_t rows = x.rows();
  bool roughly_first = staged() && top > 0 && top <= std::min(kTopMax, panels);
  if (roughly_first && steps_in_full_ > 0) {
    --steps_in_full_;
    roughly_first = false;
  }
  for (size_t r = 0; roughly_first && r < rows; ++r) {
    spreads_[r] = spread(x.floats() + r * x.k());
    roughly_first = std::isfinite(spreads_[r]);
  }
  if (!roughly_first) {
    matmul(compute, x, {&product, 1});
    return;
  }
  const Product roughly = {&copy_, approximate_.as<float>(), panels * kPanelRows};
  matmul(compute, x, {&roughly, 1});
  bound(compute, rows);
  choose_first(rows, top);
  matmul_panels(compute, x, product, tasks_);

  std::fill(tasks_.begin(), tasks_.end(), PanelTask::kFill);
  for (const uint32_t panel : first_) tasks_[panel] = PanelTask::kKeep;
  size_t more = 0;
  for (size_t r = 0; r < rows; ++r) more += choose_rest(r, threshold(y + r * y_stride, top));
  if (more * kPartMax > panels) {
    steps_in_full_ = kStepsAfterMiss;
    matmul(compute, x, {&product, 1});
  } else {
    matmul_panels(compute, x, product, tasks_, kMinusInfinity);
  }
}

}  // namespace kvikk
