#pragma once
// The mixture-of-experts MLP of a layer: a router chooses experts for each row, tensor/experts.h
// computes them, a shared expert (if there is one) adds its part.

#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "models/config.h"
#include "models/tensor_loader.h"
#include "tensor/experts.h"
#include "tensor/matrix.h"

namespace kvikk {

struct MoeWeights {
  Matrix router;                   // [experts, hidden], float32
  std::vector<float> router_bias;  // [experts], or empty
  std::vector<float> correction;   // [experts]: added to scores for the choice alone; or empty
  std::vector<Expert> experts;
  Matrix shared_gate, shared_up, shared_down;
  std::vector<float> shared_mix;  // [hidden], or empty
};

// Finds and registers the weights of one layer. `weights` must stay where it is until pack().
Status load_moe(TensorLoader& loader, const ModelConfig& config, size_t layer, MoeWeights& weights);

// Chooses experts for one row from its router logits [experts], which are overwritten. The choices
// [config.chosen] come ordered by expert; ties are won by the lower number.
void choose_experts(const MoeConfig& config, const float* correction, float* logits,
                    ExpertChoice* choices);

class MoeBlock {
 public:
  static Result<MoeBlock> create(const ModelConfig& config, size_t rows_max);

  // Whether rows of x must be quantized too.
  static bool reads_quantized(const MoeWeights& weights) {
    return weights.shared_gate.quantized() || weights.shared_up.quantized();
  }
  // y [rows, y_stride] = what the experts make of x [rows, hidden]. y_stride >= hidden padded
  // to 16.
  void run(Compute& compute, const ModelConfig& config, const MoeWeights& weights, Activations& x,
           float* y, size_t y_stride);

 private:
  void route(Compute& compute, const ModelConfig& config, const MoeWeights& weights,
             const Activations& x);
  void add_shared(Compute& compute, const ModelConfig& config, const MoeWeights& weights,
                  Activations& x, float* y, size_t y_stride);

  ExpertMixture mixture_;
  Buffer logits_;                      // [rows, experts padded]
  std::vector<ExpertChoice> choices_;  // [rows, chosen]
  Buffer gate_, up_;                   // [rows, shared width padded]
  Buffer shared_;                      // [rows, hidden padded]
  Activations inner_;                  // [rows, shared width]
};

}  // namespace kvikk
