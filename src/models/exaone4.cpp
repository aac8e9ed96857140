// EXAONE 4: OLMo 2's norms after the blocks, with a norm for each head of q and k. In the model
// with windows three of four layers slide; the fourth sees all and does not rotate.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr size_t kPattern = 4;  // every fourth layer is a full one

// sliding_window_pattern is a number, or a text such as "LLLG" (local, global).
Status read_pattern(const ConfigKeys& keys, ModelConfig& c) {
  constexpr Key kText = {"", "sliding_window_pattern"};
  if (keys.is_text(kText)) {
    TRY_ASSIGN(const std::string pattern, keys.text(kText));
    if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos) {
      return keys.wrong(kText, "'" + pattern + "'", "a text of L and G");
    }
    for (size_t i = 0; i < c.layers; ++i) c.layer[i].sliding = pattern[i % pattern.size()] == 'L';
  } else {
    TRY(read_sliding_pattern(keys, kPattern, c));
  }
  c.layer.back().sliding = false;
  return ok_status();
}

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY_ASSIGN(ModelConfig c, read_common_config(keys));
  name_norms_at_end(keys, c);
  name_qk_norms(keys, c);
  TRY(read_window(keys, c));
  TRY_ASSIGN(const bool listed, read_layer_types(keys, c));
  if (!listed && c.window > 0) TRY(read_pattern(keys, c));
  if (c.window > 0) {
    for (LayerConfig& layer : c.layer) layer.rotates = layer.sliding;
  }
  TRY(check_windows(keys, c));
  return c;
}

}  // namespace

extern const ModelDef kExaone4;
const ModelDef kExaone4 = {
    "EXAONE 4", "exaone4", {"exaone4"}, "with and without windows", "exaone4, exaone4-full",
    read_config};

}  // namespace kvikk
