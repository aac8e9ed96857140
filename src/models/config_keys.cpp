#include "models/config_keys.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "weights/gguf.h"
#include "weights/json_file.h"

namespace kvikk {
namespace {

using Json = nlohmann::json;

constexpr size_t kConfigBytesMax = size_t{4} << 20;  // published ones have a few KiB
constexpr size_t kShownBytesMax = 80;                // of a value in a message

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "...";
  return text;
}

// A model that also sees images, say, has its language model's keys in an object, and some beside
// it.
Json language_part(Json json) {
  constexpr const char* kBeside[] = {"tie_word_embeddings", "quantization_config"};
  Json text = std::move(json["text_config"]);
  for (const char* key : kBeside) {
    if (!text.contains(key) && json.contains(key)) text[key] = std::move(json[key]);
  }
  return text;
}

}  // namespace

Result<ConfigKeys> ConfigKeys::of(const GgufFile& file) {
  ConfigKeys keys;
  keys.gguf_ = &file;
  keys.path_ = file.path();
  TRY_ASSIGN(keys.architecture_, file.get_string("general.architecture"));
  return keys;
}

Result<ConfigKeys> ConfigKeys::parse(const std::string& path, std::string_view text) {
  if (text.size() > kConfigBytesMax) {
    return exhausted(path + ": has " + std::to_string(text.size()) + " bytes; the limit is " +
                     std::to_string(kConfigBytesMax));
  }
  TRY_ASSIGN(Json json, parse_json(path, text));
  if (!json.is_object()) return damaged(path + ": is not a JSON object");
  ConfigKeys keys;
  keys.path_ = path;
  const auto part = json.find("text_config");
  if (part != json.end() && part->is_object() && part->contains("model_type")) {
    json = language_part(std::move(json));
    keys.nested_ = true;
    keys.path_ += ": text_config";
  }
  keys.json_ = std::make_shared<const Json>(std::move(json));
  TRY_ASSIGN(keys.architecture_, keys.text({"", "model_type"}));
  return keys;
}

std::string ConfigKeys::name(Key key) const {
  if (is_gguf()) {
    const bool general = key.gguf.substr(0, 8) == "general.";
    return (general ? "" : architecture_ + ".") + std::string(key.gguf);
  }
  if (find_exact(key.json) != nullptr) return std::string(key.json);
  for (const auto& [from, to] : aliases_) {
    if (from == key.json) return std::string(to);
  }
  return std::string(key.json);
}

void ConfigKeys::set_defaults(Json defaults) {
  defaults_ = std::make_shared<const Json>(std::move(defaults));
}

const Json* ConfigKeys::find_exact(std::string_view json_key) const {
  const Json* at = json_.get();
  while (true) {
    const size_t dot = json_key.find('.');
    if (!at->is_object()) return nullptr;
    const auto found = at->find(json_key.substr(0, dot));
    if (found == at->end() || found->is_null()) return nullptr;
    at = &*found;
    if (dot == std::string_view::npos) return at;
    json_key.remove_prefix(dot + 1);
  }
}

const Json* ConfigKeys::find(std::string_view json_key) const {
  if (json_key.empty()) return nullptr;
  if (const Json* value = find_exact(json_key)) return value;
  for (const auto& [from, to] : aliases_) {
    if (from != json_key) continue;
    if (const Json* value = find_exact(to)) return value;
  }
  if (defaults_ == nullptr) return nullptr;
  const auto fallback = defaults_->find(json_key);
  return fallback == defaults_->end() ? nullptr : &*fallback;
}

bool ConfigKeys::has(Key key) const {
  return is_gguf() ? !key.gguf.empty() && gguf_->has(name(key)) : find(key.json) != nullptr;
}

Result<const Json*> ConfigKeys::need(Key key) const {
  const Json* value = find(key.json);
  if (value == nullptr) return damaged(path_ + ": key '" + name(key) + "' is missing");
  return value;
}

Status ConfigKeys::wrong(Key key, const std::string& value, const std::string& right) const {
  return damaged(path_ + ": " + name(key) + " is " + value + "; it must be " + right);
}

Status ConfigKeys::wrong_type(Key key, const char* wanted) const {
  return wrong(key, shown(*find(key.json)), wanted);
}

Result<size_t> ConfigKeys::size(Key key, uint64_t max, std::optional<size_t> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  TRY_ASSIGN(const size_t value, count(key, max));
  if (value == 0) return wrong(key, "0", "a number from 1 to " + std::to_string(max));
  return value;
}

Result<size_t> ConfigKeys::count(Key key, uint64_t max) const {
  const std::string range = "a whole number up to " + std::to_string(max);
  uint64_t value = 0;
  if (is_gguf()) {
    TRY_ASSIGN(value, gguf_->get_uint(name(key)));
  } else {
    TRY_ASSIGN(const Json* json, need(key));
    if (!json->is_number_unsigned()) return wrong_type(key, range.c_str());
    value = json->get<uint64_t>();
  }
  if (value > max) return wrong(key, std::to_string(value), range);
  return static_cast<size_t>(value);
}

Result<double> ConfigKeys::raw_number(Key key) const {
  if (is_gguf()) {
    TRY_ASSIGN(const float value, gguf_->get_float(name(key)));
    return static_cast<double>(value);
  }
  TRY_ASSIGN(const Json* json, need(key));
  if (!json->is_number()) return wrong_type(key, "a number");
  return json->get<double>();
}

Result<float> ConfigKeys::number(Key key, std::optional<float> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  TRY_ASSIGN(const double value, raw_number(key));
  const float narrow = static_cast<float>(value);
  if (!std::isfinite(narrow)) return wrong(key, std::to_string(value), "a finite number");
  return narrow;
}

Result<float> ConfigKeys::positive(Key key, std::optional<float> fallback) const {
  TRY_ASSIGN(const float value, number(key, fallback));
  if (!(value > 0.0f)) return wrong(key, std::to_string(value), "a positive number");
  return value;
}

Result<bool> ConfigKeys::flag(Key key, std::optional<bool> fallback) const {
  if (!has(key) && fallback.has_value()) return *fallback;
  if (is_gguf()) return gguf_->get_bool(name(key));
  TRY_ASSIGN(const Json* json, need(key));
  if (!json->is_boolean()) return wrong_type(key, "true or false");
  return json->get<bool>();
}

Result<std::string> ConfigKeys::text(Key key, std::optional<std::string> fallback) const {
  if (!has(key) && fallback.has_value()) return std::move(*fallback);
  if (is_gguf()) return gguf_->get_string(name(key));
  TRY_ASSIGN(const Json* json, need(key));
  if (!json->is_string()) return wrong_type(key, "a text");
  return json->get<std::string>();
}

Result<std::vector<float>> ConfigKeys::numbers(Key key, size_t n) const {
  std::vector<float> values;
  if (is_gguf()) {
    TRY_ASSIGN(values, gguf_->get_floats(name(key)));
  } else {
    TRY_ASSIGN(const Json* json, need(key));
    if (!json->is_array()) return wrong_type(key, "a list of numbers");
    for (const Json& element : *json) {
      if (!element.is_number()) return wrong_type(key, "a list of numbers");
      values.push_back(static_cast<float>(element.get<double>()));
    }
  }
  if (values.size() != n) {
    return wrong(key, "a list of " + std::to_string(values.size()), "one of " + std::to_string(n));
  }
  return values;
}

Result<std::vector<int64_t>> ConfigKeys::integer_list(Key key) const {
  std::vector<int64_t> values;
  if (is_gguf()) {
    TRY_ASSIGN(values, gguf_->get_ints(name(key)));
  } else {
    TRY_ASSIGN(const Json* json, need(key));
    if (!json->is_array()) return wrong_type(key, "a list of integers");
    for (const Json& element : *json) {
      if (element.is_boolean()) {
        values.push_back(element.get<bool>() ? 1 : 0);
      } else if (element.is_number_integer()) {
        values.push_back(element.get<int64_t>());
      } else {
        return wrong_type(key, "a list of integers");
      }
    }
  }
  return values;
}

Result<std::vector<int64_t>> ConfigKeys::integers(Key key, size_t n) const {
  TRY_ASSIGN(std::vector<int64_t> values, integer_list(key));
  if (values.size() != n) {
    return wrong(key, "a list of " + std::to_string(values.size()), "one of " + std::to_string(n));
  }
  return values;
}

Result<std::vector<std::string>> ConfigKeys::texts(Key key, size_t n) const {
  std::vector<std::string> values;
  if (is_gguf()) {
    TRY_ASSIGN(values, gguf_->get_strings(name(key)));
  } else {
    TRY_ASSIGN(const Json* json, need(key));
    if (!json->is_array()) return wrong_type(key, "a list of texts");
    for (const Json& element : *json) {
      if (!element.is_string()) return wrong_type(key, "a list of texts");
      values.push_back(element.get<std::string>());
    }
  }
  if (values.size() != n) {
    return wrong(key, "a list of " + std::to_string(values.size()), "one of " + std::to_string(n));
  }
  return values;
}

Status ConfigKeys::must_be_object(Key key) const {
  return has(key) && !is_object(key) ? wrong_type(key, "an object") : ok_status();
}

bool ConfigKeys::is_object(Key key) const {
  const Json* value = is_gguf() ? nullptr : find(key.json);
  return value != nullptr && value->is_object();
}

bool ConfigKeys::is_list(Key key) const {
  if (is_gguf()) {
    const auto found = gguf_->metadata().find(name(key));
    return found != gguf_->metadata().end() && found->second.type == GgufValue::Type::kArray;
  }
  const Json* value = find(key.json);
  return value != nullptr && value->is_array();
}

bool ConfigKeys::is_text(Key key) const {
  if (is_gguf()) {
    const auto found = gguf_->metadata().find(name(key));
    return found != gguf_->metadata().end() && found->second.type == GgufValue::Type::kString;
  }
  const Json* value = find(key.json);
  return value != nullptr && value->is_string();
}

}  // namespace kvikk
