#pragma once
// A value in a JSON file together with where it stands, so that every complaint says which file and
// key it is about.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvikk {

class JsonPlace {
 public:
  using Json = nlohmann::json;

  // The whole document of the file of that name.
  JsonPlace(const Json& document, std::string file)
      : JsonPlace(document, std::move(file), /*is_file=*/true) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // Missing keys and null are the same.
  bool has(std::string_view key) const;
  Result<JsonPlace> at(std::string_view key) const;  // kDamaged where it is missing
  JsonPlace item(size_t index) const;                // of an array
  size_t size() const { return value_->size(); }

  // The value of a key. kDamaged where it is missing or of another type.
  Result<std::string> text(std::string_view key) const;
  Result<bool> flag(std::string_view key, bool otherwise) const;
  Result<size_t> count(std::string_view key, size_t otherwise) const;
  // An array, possibly empty; kDamaged where it is none.
  Result<JsonPlace> list(std::string_view key) const;

  // "tokenizer.json: normalizer.type WHAT", and with a colon before WHAT.
  Status damaged(std::string_view what) const;
  Status unsupported(std::string_view what) const;
  // `status` of something made from this value, with the place in front.
  Status with_place(const Status& status) const;

 private:
  JsonPlace(const Json& value, std::string path, bool is_file)
      : value_(&value), path_(std::move(path)), is_file_(is_file) {}
  const Json* find(std::string_view key) const;

  const Json* value_;
  std::string path_;
  bool is_file_;  // the path is only a file's name
};

}  // namespace kvikk
