#pragma once
// What a decoder is: the sizes and choices that its file declares, in one vocabulary for all
// families.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace kvikk {

enum class Activation { kSilu, kGeluTanh };

// Rotary position embedding of one kind of layer.
struct RopeConfig {
  float base = 10000.0f;
  float linear_factor = 1.0f;   // positions are divided by it
  std::vector<float> divisors;  // [rotary / 2]: of each frequency (llama 3); empty: none
};

struct ModelConfig {
  std::string architecture;
  std::string name;
  size_t vocabulary = 0;
  size_t hidden = 0;
  size_t layers = 0;
  size_t heads = 0;
  size_t kv_heads = 0;
  size_t head_dim = 0;
  size_t feed_forward = 0;
  size_t context = 0;  // tokens the model was trained for
  float norm_epsilon = 0.0f;

  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;  // scores are multiplied by it
  Activation activation = Activation::kSilu;
  bool qk_norm = false;  // each head of q and k is normalised before rotation
  bool post_norms =
      false;  // the output of attention and of the MLP is normalised before it is added
  float logit_softcap = 0.0f;  // 0: none

  RopeStyle rope_style = RopeStyle::kHalves;
  size_t rotary = 0;  // dimensions of a head that rotate
  RopeConfig rope;    // full layers
  RopeConfig rope_sliding;
  size_t window = 0;          // tokens that sliding layers see, themselves included
  std::vector<bool> sliding;  // [layers]
};

}  // namespace kvikk
