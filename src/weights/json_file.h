#pragma once
// The JSON files of a model folder: untrusted, so bounded in size and depth, each key once, and
// every fault named with its file and place.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvikk {

inline constexpr size_t kJsonBytesMax = size_t{256} << 20;  // the largest tokenizer.json has 35 MB
inline constexpr size_t kModelJsonDepthMax = 64;

// Errors: kDamaged (no JSON: says at which byte; a key that occurs twice), kExhausted (a limit).
// `path` stands in messages.
Result<nlohmann::json> parse_json(const std::string& path, std::string_view text);

// Errors: also kNotFound and kIo.
Result<nlohmann::json> read_json_file(const std::string& path);

}  // namespace kvikk
