// Qwen 2 and 2.5: Llama's equations with biases on q, k and v. The biases on k are huge (hundreds)
// in some layers, so keys lose more to rounding than elsewhere. Few configurations use the window;
// then the layers from max_window_layers on slide.

#include "models/family.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  if (keys.is_gguf()) return c;
  c.qkv_bias = Presence::kYes;
  TRY(read_qwen_windows(keys, c));
  return c;
}

}  // namespace

Status read_qwen_windows(const ConfigKeys& keys, ModelConfig& c) {
  TRY_ASSIGN(const bool windows, keys.flag({"", "use_sliding_window"}, false));
  if (!windows) return ok_status();
  TRY(read_window(keys, c));
  TRY_ASSIGN(const bool listed, read_layer_types(keys, c));
  if (!listed) {
    TRY_ASSIGN(const size_t first, keys.size({"", "max_window_layers"}, 1 << 16, 28));
    for (size_t i = first; i < c.layers; ++i) c.layer[i].sliding = true;
  }
  return check_windows(keys, c);
}

extern const ModelDef kQwen2;
const ModelDef kQwen2 = {"Qwen 2",           "qwen2",
                         {"qwen2"},          "Qwen 2, Qwen 2.5 and 2.5-Coder",
                         "qwen2, qwen2-swa", read_config};

}  // namespace kvikk
