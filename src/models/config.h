#pragma once
// What a model is: the sizes and choices that its file declares, in one vocabulary for all
// families and file formats, of decoders and encoders. A family (llama.cpp ...) fills this in;
// load.cpp finds the weights that it asks for; decoder.cpp computes it.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "models/mla_config.h"
#include "models/moe_config.h"
#include "models/rope.h"
#include "models/tensor_names.h"

namespace kvikk {

enum class Activation { kSilu, kGeluTanh, kGelu, kRelu2 };

enum class NormKind {
  kRms,    // x / sqrt(mean(x^2) + epsilon) * weight
  kLayer,  // (x - mean(x)) / sqrt(variance(x) + epsilon) * weight + bias
};

// Normalisation of q and k; where there is one, names.q_norm and k_norm say where its weights are.
enum class QkNorm {
  kHead,      // each head by itself, weights [head_dim]
  kEachHead,  // each head by itself, with weights of its own [heads, head_dim] and no bias
  kAllHeads,  // all heads at once, weights [heads * head_dim]
};

// Whether tensors must be, must not be, or may be in the file.
enum class Presence { kNo, kYes, kIfThere };

// How layers differ inside a model. What replaces a layer's dense MLP or its attention (experts,
// latent attention) is declared here too, so that load.cpp and decoder.cpp choose by layer.
struct LayerConfig {
  bool sliding = false;  // sees `window` tokens, not all
  bool rotates = true;   // q and k are rotated by position
  bool experts = false;  // its MLP is a mixture of experts
};

struct ModelConfig {
  std::string architecture;  // the family's name
  std::string name;
  size_t vocabulary = 0;
  size_t hidden = 0;
  size_t layers = 0;
  size_t layers_unused = 0;  // behind them in the file: they predict tokens further ahead
  size_t heads = 0;
  size_t kv_heads = 0;
  size_t head_dim = 0;   // of a query and a key, as the cache holds it
  size_t value_dim = 0;  // of a value; where there is latent attention, of the latent
  size_t feed_forward = 0;
  size_t context = 0;  // tokens the model was trained for

  // Structure. Which norms a layer has follows from `names`: what has no name is not there.
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 0.0f;
  bool norm_bias = false;        // of kLayer
  float norm_weight_offset = 0;  // added to stored weights of norms (1 + weight)
  bool parallel = false;         // x + attention(norm(x)) + mlp(norm(x)), not one after the other
  bool norm_of_sum = false;      // norms after a block are of the stream: x = norm(x + block(x))
  // Each token sees its whole text, which one batch must hold; there is no head. Layers leave
  // nothing in the cache that a later step could use.
  bool encoder = false;
  QkNorm qk_norm = QkNorm::kHead;
  bool qk_norm_after_rope = false;
  bool qk_norm_optional = false;  // its weights may be missing: then there is none
  bool gated_mlp = true;          // down(act(gate) * up), not down(act(up))
  Activation activation = Activation::kSilu;
  Presence qkv_bias = Presence::kNo;
  Presence output_bias = Presence::kNo;  // of the attention's output
  Presence mlp_bias = Presence::kNo;
  Presence head_bias = Presence::kNo;
  Presence tied = Presence::kIfThere;  // the head is the embedding; kIfThere: if it has none

  // Factors.
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;    // scores are multiplied by it
  float attention_softcap = 0.0f;  // scores s become cap * tanh(s / cap); 0: none
  float residual_scale = 1.0f;     // of what a block adds to the residual stream
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0: none

  // Positions.
  size_t learned_positions = 0;  // rows of a table of position embeddings; 0: none
  size_t first_position = 0;     // the row of a text's first token
  size_t token_types = 0;        // rows of that table; 0: as many as the file has
  RopeStyle rope_style = RopeStyle::kHalves;
  float rotary_part = 1.0f;  // of a head, where the file does not say how much rotates
  size_t rotary = 0;         // dimensions of a head that rotate
  RopeConfig rope;           // full layers
  RopeConfig rope_sliding;
  size_t window = 0;               // tokens that sliding layers see, themselves included
  std::vector<LayerConfig> layer;  // [layers]

  MoeConfig moe;
  MlaConfig mla;

  TensorNames names;

  // The widest input of a matrix.
  size_t widest() const;
};

}  // namespace kvikk
