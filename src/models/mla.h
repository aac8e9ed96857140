#pragma once
// Multi-head latent attention (DeepSeek-V2, section 2.1) in its absorbed form, for decode and
// prefill alike. The cache holds one vector a token, the latent c and the rotated key part k':
//
//   c = norm(Wkv x)[0, rank)     k' = rope(Wkv x)[rank, rank + rotary)
//   score of head h = q . (Wk_h c) + q' . k' = (Wk_h^T q) . c + q' . k'
//   output of head h = Wv_h (sum of weights c)
//
// So all heads attend to the same keys [c, k'] and values c, as query heads that share a KV head,
// with queries [Wk_h^T q, q'].

#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "models/config.h"
#include "models/tensor_loader.h"
#include "tensor/matrix.h"

namespace kvikk {

struct MlaWeights {
  Matrix q_down;              // [q_rank, hidden], where there is one
  std::vector<float> q_norm;  // [q_rank]
  Matrix q_up;                // [heads x (plain + rotary), q_rank or hidden]
  Matrix kv_down;             // [rank + rotary, hidden]
  std::vector<float> kv_norm;
  std::vector<Matrix> k_up;  // [heads] of [rank, plain], floats: queries into the latent
  std::vector<Matrix> v_up;  // [heads] of [value, rank], floats: out of it

  bool reads_quantized() const {
    return kv_down.quantized() || (q_down.panels != nullptr ? q_down : q_up).quantized();
  }
};

// Finds and registers the weights of one layer. `weights` must stay where it is until pack().
Status load_mla(TensorLoader& loader, const ModelConfig& config, size_t layer, MlaWeights& weights);

class MlaBlock {
 public:
  static Result<MlaBlock> create(const ModelConfig& config, size_t rows_max);

  // From x [rows, hidden], normalised: the key of each row and the scaled queries of its heads.
  // rope_tables: of row r at r * table_floats, cosines then sines [rotary / 2].
  void project(Compute& compute, const ModelConfig& config, const MlaWeights& weights,
               const Activations& x, const float* rope_tables, size_t table_floats);
  const float* key(size_t row) const { return kv_.as<float>() + row * kv_stride_; }
  const float* queries() const { return queries_.as<float>(); }  // [rows, heads, rank + rotary]
  size_t queries_stride() const { return queries_stride_; }
  float* attended() { return attended_.as<float>(); }  // [rows, heads, rank]
  size_t attended_stride() const { return attended_stride_; }
  // Into out [rows, heads x value].
  void values(Compute& compute, const ModelConfig& config, const MlaWeights& weights,
              Activations& out);

 private:
  // y = x W^T for each head's matrix on that head's part of x.
  static void multiply_heads(Compute& compute, const std::vector<Matrix>& matrices, size_t rows,
                             const float* x, size_t x_stride, size_t x_head, float* y,
                             size_t y_stride, size_t y_head);

  size_t kv_stride_ = 0, q_stride_ = 0, queries_stride_ = 0, attended_stride_ = 0;
  size_t head_floats_ = 0;  // of a head in by_head_
  Buffer q_down_;           // [rows, q_rank padded]
  Activations q_in_;        // [rows, q_rank]
  Buffer q_;                // [rows, heads x (plain + rotary) padded]
  Buffer kv_;               // [rows, rank + rotary padded]
  Buffer by_head_;          // [rows, heads, rank or value padded]
  Buffer queries_;
  Buffer attended_;
};

}  // namespace kvikk
