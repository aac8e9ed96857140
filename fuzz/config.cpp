// Any text as a config.json: reading it must end in a Status, or in a configuration whose sizes are
// within their limits.

#include <string_view>

#include "base/check.h"
#include "models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto keys = kvikk::ConfigKeys::parse("config.json", text);
  if (!keys.ok()) return 0;
  const auto config = kvikk::read_model_config(*keys);
  if (!config.ok()) return 0;
  CHECK(config->kv_heads > 0);
  CHECK(config->heads % config->kv_heads == 0);
  CHECK(config->layer.size() == config->layers);
  CHECK(config->rotary <= config->head_dim);
  return 0;
}
