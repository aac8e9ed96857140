#include "engine/condition_keys.h"

#include <algorithm>

#include "models/kv_sidecar.h"

namespace kvikk {

Result<std::vector<KeyConditioning>> condition_keys(Model& model, Compute& compute,
                                                    const TensorSource& tensors,
                                                    const Tokenizer* tokenizer,
                                                    const ConditionRequest& request) {
  const ModelConfig& config = model.config();
  if (!request.choice.conditions_keys()) return std::vector<KeyConditioning>{};
  if (tokenizer == nullptr) return bias_conditioning(config, model.weights());
  std::vector<TokenId> tokens = tokenizer->encode(calibration_text(), {});
  if (tokenizer->adds_bos() && tokenizer->bos().has_value()) {
    tokens.insert(tokens.begin(), *tokenizer->bos());
  }
  // Never less because of this engine's own context: the same model has the same codes everywhere.
  tokens.resize(std::min({tokens.size(), kCalibrationTokensMax, config.context}));
  if (tokens.size() < kCalibrationTokensMax / 4) {  // they would measure noise
    return bias_conditioning(config, model.weights());
  }
  if (request.cache_dir.empty()) {
    return calibrate_keys(model, compute, tokens, request.choice, request.context);
  }
  const std::string key =
      kv_sidecar_key(tensors, config, request.choice, request.weights, request.context);
  const std::string path = kv_sidecar_path(request.cache_dir, key);
  auto kept = read_kv_sidecar(path, key);
  if (kept.ok() && kept->size() == config.layers * config.kv_heads) return kept;
  TRY_ASSIGN(std::vector<KeyConditioning> measured,
             calibrate_keys(model, compute, tokens, request.choice, request.context));
  // A folder that cannot be written costs time at the next start and nothing else.
  static_cast<void>(write_kv_sidecar(path, key, measured));
  return measured;
}

}  // namespace kvikk
