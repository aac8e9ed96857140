#pragma once
// A loaded model and its forward pass: one path for prefill, decode, batches, encoders and --exact.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kv/attend.h"
#include "kv/coder.h"
#include "kvikk/token.h"
#include "models/config.h"
#include "models/mla.h"
#include "models/moe.h"
#include "models/output_head.h"
#include "models/row_ops.h"
#include "models/tensor_loader.h"
#include "tensor/matrix.h"
#include "weights/tensor_source.h"

namespace kvikk {

struct Linear {
  Matrix matrix;
  std::vector<float> bias;  // [outputs], or empty
};

struct LayerWeights {
  NormWeights attention_norm, post_attention_norm;  // [hidden]
  Linear q, k, v, o;
  NormWeights q_norm, k_norm;           // [head_dim] or [heads x head_dim], see QkNorm
  std::vector<float> sinks;             // [heads], or empty
  std::unique_ptr<MlaWeights> mla;      // in place of q, k and v
  NormWeights mlp_norm, post_mlp_norm;  // [hidden]
  std::unique_ptr<MoeWeights> moe;      // in place of gate, up and down
  Linear gate, up, down;                // gate: only where the MLP is gated
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> token_type;  // [hidden], or empty: added to each embedding
  NormWeights embedding_norm;     // [hidden]
  NormWeights output_norm;        // [hidden]
  Linear head;                    // [vocabulary, hidden]
  OutputHead output;              // the product with it
  bool tied = false;              // the head is the embedding
  const StoredTensor* head_tensor = nullptr;
  const TensorSource* source = nullptr;     // outlives the model
  const StoredTensor* embedding = nullptr;  // fetched row by row from the file, as it is
  const StoredTensor* positions = nullptr;  // the same for learned positions, or null
  Buffer memory;                            // all matrices
};

// Checks every tensor against the configuration, then packs them on `pool`'s threads. The file's
// pages are dropped as they are packed. What only the tensors say (the vocabulary of a GGUF file,
// divisors of rotary frequencies) goes into `config`. Errors: kDamaged (missing tensor, wrong
// shape, a scale that is no number), kUnsupported (a tensor that the family does not have),
// kExhausted.
Result<ModelWeights> load_weights(const TensorSource& source, ModelConfig& config, ThreadPool& pool,
                                  const LoadOptions& options);

// The same checks without the weights: reads the small tensors only.
Status check_weights(const TensorSource& source, ModelConfig& config);

// Rows of one call of Model::logits.
inline constexpr size_t kLogitsRowsMax = 16;

// The rows of one step. Row i is token i of `tokens`; spans cover the rows in order.
struct Batch {
  std::vector<TokenId> tokens;        // [rows]
  std::vector<Span> spans;            // reserve() done, advance() not yet
  std::vector<uint32_t> output_rows;  // ascending; rows whose final hidden state is wanted

  void clear() {
    tokens.clear();
    spans.clear();
    output_rows.clear();
  }
};

class Model {
 public:
  // rows_max: rows of a batch; context_max: positions of a sequence; coded_kv: whether caches with
  // a coder will come. Errors: kInvalidArgument (more
  // positions than a model with learned ones has), kExhausted.
  static Result<std::unique_ptr<Model>> create(std::shared_ptr<const TensorSource> source,
                                               ModelConfig config, ModelWeights weights,
                                               Compute& compute, size_t rows_max,
                                               size_t context_max, bool coded_kv = false);

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  size_t rows_max() const { return rows_max_; }

  // The cache that this model needs.
  static KvShape kv_shape(const ModelConfig& config, KvFormat format,
                          std::shared_ptr<const KvCoder> coder = nullptr);
  // The head size that Compute::create() needs.
  static size_t attend_dim_max(const ModelConfig& config, bool coded_kv) {
    return coded_kv ? KvCoder::attend_dim_max(config.head_dim, config.rotary) : config.head_dim;
  }

  // Sees the queries of each layer of each step, rotated and scaled: [rows, stride].
  using QueryObserver =
      std::function<void(const Batch& batch, size_t layer, const float* queries, size_t stride)>;
  void observe_queries(QueryObserver observer) { query_observer_ = std::move(observer); }

  // Runs all layers over the batch, stores keys and values, keeps the final hidden state of the
  // output rows. Tokens must be in the vocabulary; an encoder's spans are whole texts, from
  // position 0. Does not advance the sequences.
  void forward(Compute& compute, const Batch& batch);

  // The final hidden states [output rows, hidden] of the last forward.
  const float* outputs() const { return outputs_.as<float>(); }
  // Logits of `count` output rows of the last forward, from output row `first`: [count, vocabulary
  // rounded up to 16] in a buffer of this model, valid until the next call. count <=
  // logits_rows_max. top: how many of the largest of each row the caller looks at (Sampler::
  // top_needed()); others may be -infinity, which is faster. 0: all are there.
  std::span<const float> logits(Compute& compute, size_t first, size_t count, size_t top = 0);
  size_t logits_stride() const { return weights_.head.matrix.panel_count() * kPanelRows; }

 private:
  Model(ModelConfig config, ModelWeights weights)
      : config_(std::move(config)), weights_(std::move(weights)) {}
  Status allocate(const Compute& compute, size_t context_max, bool coded_kv);
  void embed(Compute& compute, const Batch& batch);
  void fill_rope_tables(Compute& compute, const Batch& batch);
  void join(const Kernels& kernels, const Linear& last, const NormWeights& post_norm, float* y,
            size_t row);
  void join_attention(const Kernels& kernels, size_t layer, size_t row);
  void join_layer(const Kernels& kernels, size_t layer, size_t row);
  void attention_block(Compute& compute, const Batch& batch, size_t layer);
  void attend(Compute& compute, const Batch& batch, size_t layer, const float* queries,
              size_t queries_stride, float* out, size_t out_stride);
  void latent_attention(Compute& compute, const Batch& batch, size_t layer);
  void rotate_and_store(Compute& compute, const Batch& batch, size_t layer);
  void finish_heads(const Kernels& kernels, const LayerConfig& layer, const NormWeights& norm,
                    const float* rope_table, size_t heads, float* row);
  void seal_pages(Compute& compute, const Batch& batch, size_t layer);
  void mlp_block(Compute& compute, size_t layer);
  void gather_outputs(Compute& compute, const Batch& batch);

  ModelConfig config_;
  ModelWeights weights_;
  std::shared_ptr<const TensorSource> source_;
  size_t rows_max_ = 0;

  struct LayerPlace {
    size_t group, index;
  };
  std::vector<LayerPlace> places_;     // [layers]: where each layer's pages are
  std::vector<uint32_t> positions_;    // [rows]
  std::vector<uint32_t> span_of_row_;  // [rows]

  Buffer x_;             // [rows, hidden]: the residual stream
  Buffer y_;             // [rows, padded hidden]: a block's output, before it joins x
  Buffer z_;             // the same of the MLP, where it runs beside the attention
  Buffer q_, k_, v_;     // [rows, padded]
  Buffer gate_, up_;     // [rows, padded feed_forward]
  Buffer rope_tables_;   // [rows][2 kinds][cosines, sines][rotary / 2]
  Buffer inverse_freq_;  // [2 kinds][rotary / 2]
  Buffer ones_;          // [feed_forward]: what an MLP without a gate multiplies by
  Buffer outputs_;       // [rows, hidden]: final hidden states
  Buffer logits_;        // [kLogitsRowsMax, padded vocabulary]
  Activations in_;       // input of the coming matmul
  Activations head_in_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<MlaBlock> latent_;  // where the model has latent attention
  std::unique_ptr<MoeBlock> moe_;     // where it has experts
  QueryObserver query_observer_;
};

}  // namespace kvikk
