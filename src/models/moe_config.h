#pragma once
// A layer whose MLP is a mixture of experts, as its file declares it.

#include <cstddef>

namespace kvikk {

// More than any published model; what a file may claim at most.
inline constexpr size_t kExpertsMax = 1024;
inline constexpr size_t kExpertsChosenMax = 64;

// Where the weights are: as in TensorNames. A name with an @ (for the expert's number) is a tensor
// for each expert; without one it is a tensor that holds all of them, one after the other.
struct MoeNames {
  const char* router = nullptr;
  const char* correction = nullptr;  // the whole name
  const char* gate = nullptr;
  const char* up = nullptr;
  const char* gate_up = nullptr;  // in place of both
  const char* down = nullptr;
  const char* shared_gate = nullptr;
  const char* shared_up = nullptr;
  const char* shared_down = nullptr;
  const char* shared_mix = nullptr;  // [hidden]: how much of the shared expert a row gets
};

struct MoeConfig {
  enum class Score { kSoftmax, kSigmoid };
  enum class GroupScore {
    kBest,
    kBestTwo
  };  // of a group: its best expert, the sum of its best two
  enum class Fused {
    kGateThenUp,         // rows of the gate, then rows of up
    kInterleavedColumns  // stored [inputs, outputs]; outputs are gate, up, gate, up ...
  };

  size_t experts = 0;       // 0: the model has none
  size_t chosen = 0;        // a row
  size_t width = 0;         // inner size of an expert
  size_t shared_width = 0;  // of the expert that every row goes through; 0: none

  Score score = Score::kSoftmax;
  bool renormalize = false;   // weights of the chosen sum to one ...
  float weight_scale = 1.0f;  // ... then are multiplied by this
  // Experts lie in groups; only those of the best groups can be chosen.
  size_t groups = 1;
  size_t groups_chosen = 1;
  GroupScore group_score = GroupScore::kBest;
  bool router_bias = false;  // added to the logits
  bool expert_bias = false;
  Fused fused = Fused::kGateThenUp;
  // gpt-oss: gate and up are clamped, y = (up + 1) gate sigmoid(1.702 gate); 0: act(gate) * up.
  float clamp = 0.0f;

  MoeNames names;
};

}  // namespace kvikk
