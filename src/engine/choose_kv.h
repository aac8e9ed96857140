#pragma once
// --kv auto: the smallest cache whose answers cannot be told from those of the exact one.
//
// Each coded cache runs the built-in probe text behind some of the calibration text, and the
// distance of its next-token distributions from the exact cache's is its mean KL divergence. The
// first whose distance is within the budget, from the smallest cache upwards, is taken. Distances
// are kept beside the fetched models, so that a model is measured once.

#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

struct KvMeasure {
  std::string kv;
  size_t bytes_per_token = 0;
  double mean_kl = 0;
};

struct KvDecision {
  std::string kv;  // for EngineOptions::kv
  std::string why;
};

// Errors: those of loading the model and of measuring it.
Result<KvDecision> choose_kv(const ModelFile& file, const EngineOptions& options);

// The decision among measured caches, from the smallest upwards.
KvDecision decide_kv(const std::vector<KvMeasure>& measured, double budget, size_t exact_bytes);

}  // namespace kvikk
