#include "models/mla.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "models/row_ops.h"

namespace kvikk {

namespace {

size_t padded(size_t n) { return (n + kPanelRows - 1) / kPanelRows * kPanelRows; }

// The matrices of all heads, from one tensor for keys and values or from one for each.
Status load_up(TensorLoader& loader, const ModelConfig& c, size_t layer, MlaWeights& w) {
  const MlaConfig& m = c.mla;
  w.k_up.resize(c.heads);
  w.v_up.resize(c.heads);
  const bool apart = m.names.k_up != nullptr &&
                     loader.lookup(at_layer(m.names.k_up, layer) + ".weight") != nullptr;
  if (apart) {
    const std::string keys = at_layer(m.names.k_up, layer);
    const std::string values = at_layer(m.names.v_up, layer);
    for (size_t h = 0; h < c.heads; ++h) {
      const Stack stack = {c.heads, h, false};
      TRY(loader.stacked_matrix(keys, stack, RowChoice::all(m.rank), m.rank, m.plain, w.k_up[h],
                                true));
      TRY(loader.stacked_matrix(values, stack, RowChoice::all(m.value), m.value, m.rank, w.v_up[h],
                                true));
    }
    return ok_status();
  }
  const std::string name = at_layer(m.names.kv_up, layer) + ".weight";
  const size_t head_rows = m.plain + m.value;
  const size_t rows = c.heads * head_rows;
  for (size_t h = 0; h < c.heads; ++h) {
    const size_t first = h * head_rows;
    TRY(loader.turned_rows(name, rows, first, m.rank, m.plain, w.k_up[h]));
    const RowChoice choice = RowChoice::range(rows, first + m.plain, m.value);
    TRY(loader.float_matrix(name, choice, m.value, m.rank, w.v_up[h]));
  }
  return ok_status();
}

}  // namespace

Status load_mla(TensorLoader& loader, const ModelConfig& c, size_t layer, MlaWeights& w) {
  const MlaConfig& m = c.mla;
  const auto matrix = [&](const char* name, size_t outputs, size_t inputs, Matrix& out) {
    return loader.matrix(at_layer(name, layer) + ".weight", RowChoice::all(outputs), outputs,
                         inputs, out);
  };
  const auto norm = [&](const char* name, size_t n, std::vector<float>& out) {
    return loader.vector(at_layer(name, layer) + ".weight", RowChoice::all(n), n, out);
  };
  if (m.q_rank > 0) {
    TRY(matrix(m.names.q_down, m.q_rank, c.hidden, w.q_down));
    TRY(norm(m.names.q_norm, m.q_rank, w.q_norm));
  }
  const size_t q_inputs = m.q_rank > 0 ? m.q_rank : c.hidden;
  TRY(matrix(m.q_rank > 0 ? m.names.q_up : c.names.q, c.heads * (m.plain + m.rotary), q_inputs,
             w.q_up));
  TRY(matrix(m.names.kv_down, m.rank + m.rotary, c.hidden, w.kv_down));
  TRY(norm(m.names.kv_norm, m.rank, w.kv_norm));
  return load_up(loader, c, layer, w);
}

Result<MlaBlock> MlaBlock::create(const ModelConfig& c, size_t rows_max) {
  const MlaConfig& m = c.mla;
  MlaBlock block;
  block.kv_stride_ = padded(m.rank + m.rotary);
  block.q_stride_ = padded(c.heads * (m.plain + m.rotary));
  block.queries_stride_ = c.heads * (m.rank + m.rotary);
  block.attended_stride_ = c.heads * m.rank;
  block.head_floats_ = std::max(padded(m.rank), padded(m.value));
  const auto floats = [&](size_t n) { return Buffer::allocate(rows_max * n * sizeof(float)); };
  TRY_ASSIGN(block.kv_, floats(block.kv_stride_));
  TRY_ASSIGN(block.q_, floats(block.q_stride_));
  TRY_ASSIGN(block.queries_, floats(block.queries_stride_));
  TRY_ASSIGN(block.attended_, floats(block.attended_stride_));
  TRY_ASSIGN(block.by_head_, floats(c.heads * block.head_floats_));
  if (m.q_rank == 0) return block;
  TRY_ASSIGN(block.q_down_, floats(padded(m.q_rank)));
  TRY_ASSIGN(block.q_in_, Activations::allocate(rows_max, m.q_rank));
  return block;
}

void MlaBlock::multiply_heads(Compute& compute, const std::vector<Matrix>& matrices, size_t rows,
                              const float* x, size_t x_stride, size_t x_head, float* y,
                              size_t y_stride, size_t y_head) {
  for (const Matrix& matrix : matrices) {
    count_product(compute, matrix, rows, matrix.panel_count());
  }
  compute.pool().parallel_for(matrices.size(), [&](size_t head, int thread) {
    const Matrix& matrix = matrices[head];
    CHECK(!matrix.quantized());
    multiply_panels(compute, {rows, matrix.inputs, {}, x + head * x_head, x_stride},
                    {&matrix, y + head * y_head, y_stride}, 0, matrix.panel_count(), thread);
  });
}

void MlaBlock::project(Compute& compute, const ModelConfig& c, const MlaWeights& w,
                       const Activations& x, const float* rope_tables, size_t table_floats) {
  const MlaConfig& m = c.mla;
  const Kernels& kernels = compute.kernels();
  const size_t rows = x.rows();
  const auto rope = kernels.rope[static_cast<size_t>(c.rope_style)];
  const bool down = m.q_rank > 0;
  const Product first[] = {
      {&w.kv_down, kv_.as<float>(), kv_stride_},
      {down ? &w.q_down : &w.q_up, (down ? q_down_ : q_).as<float>(),
       down ? padded(m.q_rank) : q_stride_},
  };
  compute.pool().label("q, k, v");
  matmul(compute, x, first);
  if (down) q_in_.shape(rows, m.q_rank);
  compute.for_rows(rows, [&](size_t r, int) {
    float* key = kv_.as<float>() + r * kv_stride_;
    const float* table = rope_tables + r * table_floats;
    kernels.rms_norm(key, w.kv_norm.data(), m.rank, c.norm_epsilon, key);
    rope(key + m.rank, table, table + m.rotary / 2, m.rotary);
    if (!down) return;
    kernels.rms_norm(q_down_.as<float>() + r * padded(m.q_rank), w.q_norm.data(), m.q_rank,
                     c.norm_epsilon, q_in_.row(r));
    if (w.q_up.quantized()) q_in_.quantize(kernels, r);
  });
  if (down) {
    const Product product = {&w.q_up, q_.as<float>(), q_stride_};
    matmul(compute, q_in_, {&product, 1});
  }
  multiply_heads(compute, w.k_up, rows, q_.as<float>(), q_stride_, m.plain + m.rotary,
                 by_head_.as<float>(), c.heads * head_floats_, head_floats_);
  compute.for_rows(rows, [&](size_t r, int) {
    const float* table = rope_tables + r * table_floats;
    for (size_t h = 0; h < c.heads; ++h) {
      float* query = queries_.as<float>() + r * queries_stride_ + h * (m.rank + m.rotary);
      std::memcpy(query, by_head_.as<float>() + (r * c.heads + h) * head_floats_,
                  m.rank * sizeof(float));
      const float* q = q_.as<float>() + r * q_stride_ + h * (m.plain + m.rotary);
      std::memcpy(query + m.rank, q + m.plain, m.rotary * sizeof(float));
      rope(query + m.rank, table, table + m.rotary / 2, m.rotary);
    }
    scale_row(c.attention_scale, queries_stride_, queries_.as<float>() + r * queries_stride_);
  });
}

void MlaBlock::values(Compute& compute, const ModelConfig& c, const MlaWeights& w,
                      Activations& out) {
  const size_t value = c.mla.value;
  multiply_heads(compute, w.v_up, out.rows(), attended_.as<float>(), attended_stride_, c.mla.rank,
                 by_head_.as<float>(), c.heads * head_floats_, head_floats_);
  compute.for_rows(out.rows(), [&](size_t r, int) {
    for (size_t h = 0; h < c.heads; ++h) {
      std::memcpy(out.row(r) + h * value, by_head_.as<float>() + (r * c.heads + h) * head_floats_,
                  value * sizeof(float));
    }
  });
}

}  // namespace kvikk
