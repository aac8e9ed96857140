#pragma once
// The keys of a model's configuration, from a GGUF file's metadata or from a config.json, so that a
// family reads both with the same lines. Everything is untrusted: each value is checked against
// limits, and an error names the file, the key and what it should be.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvikk {

class GgufFile;

// One fact under its name in each format. Empty: that format does not say it.
struct Key {
  std::string_view gguf;  // without the architecture in front
  std::string_view json;  // dots lead into objects: "rope_scaling.factor"
};

class ConfigKeys {
 public:
  // `file` must outlive the keys.
  static Result<ConfigKeys> of(const GgufFile& file);
  // Errors: kDamaged when the text is no JSON object, kExhausted when it is too long.
  static Result<ConfigKeys> parse(const std::string& path, std::string_view text);

  bool is_gguf() const { return gguf_ != nullptr; }
  // The "text_config" of a config.json whose model also sees images, say. Such a one leaves out
  // what is as in the family's first models.
  bool is_nested() const { return nested_; }
  // general.architecture or model_type.
  const std::string& architecture() const { return architecture_; }
  // As messages name the file and the key.
  const std::string& path() const { return path_; }
  std::string name(Key key) const;

  // Other names of JSON keys: {"hidden_size", "n_embd"}: the second is read where the first is
  // missing.
  using Alias = std::pair<std::string_view, std::string_view>;
  void set_aliases(std::vector<Alias> aliases) { aliases_ = std::move(aliases); }
  // An object with values of JSON keys that the file lacks.
  void set_defaults(nlohmann::json defaults);

  // There, and not null.
  bool has(Key key) const;
  // Each takes the fallback when the key is missing; without one that is an error.
  Result<size_t> size(Key key, uint64_t max, std::optional<size_t> fallback = {}) const;  // 1..max
  Result<size_t> count(Key key, uint64_t max) const;                                      // 0..max
  Result<float> number(Key key, std::optional<float> fallback = {}) const;                // finite
  Result<float> positive(Key key, std::optional<float> fallback = {}) const;  // finite, > 0
  Result<bool> flag(Key key, std::optional<bool> fallback = {}) const;
  Result<std::string> text(Key key, std::optional<std::string> fallback = {}) const;
  // Exactly n elements.
  Result<std::vector<float>> numbers(Key key, size_t n) const;
  Result<std::vector<int64_t>> integers(Key key, size_t n) const;  // also flags
  Result<std::vector<int64_t>> integer_list(Key key) const;        // of any length
  Result<std::vector<std::string>> texts(Key key, size_t n) const;
  // kDamaged where the key is there and its value is no object.
  Status must_be_object(Key key) const;
  // A value that is an object, or (in GGUF) a list.
  bool is_object(Key key) const;
  bool is_list(Key key) const;
  bool is_text(Key key) const;

  // kDamaged: "FILE: KEY is VALUE; it must be RIGHT".
  Status wrong(Key key, const std::string& value, const std::string& right) const;

 private:
  ConfigKeys() = default;
  const nlohmann::json* find(std::string_view json_key) const;
  const nlohmann::json* find_exact(std::string_view json_key) const;
  Result<const nlohmann::json*> need(Key key) const;
  Result<double> raw_number(Key key) const;
  Status wrong_type(Key key, const char* wanted) const;

  const GgufFile* gguf_ = nullptr;
  std::shared_ptr<const nlohmann::json> json_, defaults_;
  bool nested_ = false;
  std::string path_;
  std::string architecture_;
  std::vector<Alias> aliases_;
};

}  // namespace kvikk
