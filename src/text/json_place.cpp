// Paths are written as in "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern".
#include "text/json_place.h"

namespace kvikk {

const JsonPlace::Json* JsonPlace::find(std::string_view key) const {
  if (!value_->is_object()) return nullptr;
  const auto found = value_->find(std::string(key));
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonPlace::has(std::string_view key) const { return find(key) != nullptr; }

Result<JsonPlace> JsonPlace::at(std::string_view key) const {
  const Json* found = find(key);
  std::string path = path_ + (is_file_ ? ": " : ".") + std::string(key);
  if (found == nullptr) return kvikk::damaged(path + " is missing");
  return JsonPlace(*found, std::move(path), false);
}

JsonPlace JsonPlace::item(size_t index) const {
  return {(*value_)[index], path_ + "[" + std::to_string(index) + "]", false};
}

Result<std::string> JsonPlace::text(std::string_view key) const {
  TRY_ASSIGN(const JsonPlace place, at(key));
  if (!place.value().is_string()) return place.damaged("is not a string");
  return place.value().get<std::string>();
}

Result<bool> JsonPlace::flag(std::string_view key, bool otherwise) const {
  if (!has(key)) return otherwise;
  TRY_ASSIGN(const JsonPlace place, at(key));
  if (!place.value().is_boolean()) return place.damaged("is neither true nor false");
  return place.value().get<bool>();
}

Result<size_t> JsonPlace::count(std::string_view key, size_t otherwise) const {
  if (!has(key)) return otherwise;
  TRY_ASSIGN(const JsonPlace place, at(key));
  if (!place.value().is_number_unsigned()) return place.damaged("is not a whole number");
  return place.value().get<size_t>();
}

Result<JsonPlace> JsonPlace::list(std::string_view key) const {
  TRY_ASSIGN(JsonPlace place, at(key));
  if (!place.value().is_array()) return place.damaged("is not a list");
  return place;
}

Status JsonPlace::damaged(std::string_view what) const {
  return kvikk::damaged(path_ + (is_file_ ? ": " : " ") + std::string(what));
}

Status JsonPlace::unsupported(std::string_view what) const {
  return kvikk::unsupported(path_ + ": " + std::string(what));
}

Status JsonPlace::with_place(const Status& status) const {
  if (status.ok()) return status;
  return {status.code(), path_ + ": " + std::string(status.message())};
}

}  // namespace kvikk
