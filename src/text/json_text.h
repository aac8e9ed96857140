#pragma once
// JSON that comes from anywhere, files or the network: parsed with limits, errors that say where.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/token.h"

namespace kvikk {

inline constexpr size_t kJsonDepthMax = 500;  // brackets within each other

enum class JsonComments { kRefused, kIgnored };

// `where` begins the message of an error: a file and a line. kDamaged for what is no JSON.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const std::string& where,
                                          JsonComments comments = JsonComments::kRefused);
// parse_json, and an object.
Result<nlohmann::ordered_json> parse_json_object(std::string_view text, const std::string& where);

// A list of whole numbers from 0 to 2^31 - 1: token ids, positions.
Result<std::vector<TokenId>> json_numbers(const nlohmann::ordered_json& json,
                                          const std::string& where);

// The member of an object if it is there and a whole number from 0.
std::optional<uint64_t> json_unsigned(const nlohmann::ordered_json& object, const char* name);

// One line of JSON, also for readers that know other line ends than '\n'; text that is no UTF-8
// becomes U+FFFD.
std::string json_line(const nlohmann::ordered_json& json);

}  // namespace kvikk
