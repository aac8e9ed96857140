#include "serving/fields.h"

#include <algorithm>
#include <utility>

#include "text/option_entry.h"

namespace kvikk {

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Status Fields::wrong(std::string_view name, const std::string& what) {
  wrong_ = where_ + std::string(name);
  return invalid_argument("'" + wrong_ + "' " + what);
}

Status Fields::of_inner(const Fields& inner, Status status) {
  if (!status.ok()) wrong_ = inner.wrong_;
  return status;
}

Status Fields::text(std::string_view name, std::string& value) {
  const Json* json = find(name);
  if (json == nullptr) return ok_status();
  if (!json->is_string()) return wrong(name, "must be a text");
  value = json->get<std::string>();
  return ok_status();
}

Status Fields::flag(std::string_view name, bool& value) {
  const Json* json = find(name);
  if (json == nullptr) return ok_status();
  if (!json->is_boolean()) return wrong(name, "must be true or false");
  value = json->get<bool>();
  return ok_status();
}

Status Fields::whole(std::string_view name, int64_t min, int64_t max, int64_t& value) {
  const Json* json = find(name);
  if (json == nullptr) return ok_status();
  const bool is_whole = json->is_number_unsigned()
                            ? json->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                            : json->is_number_integer();
  if (!is_whole || json->get<int64_t>() < min || json->get<int64_t>() > max) {
    return wrong(name, "is " + short_text(json->dump()) + "; it must be a whole number from " +
                           std::to_string(min) + " to " + std::to_string(max));
  }
  value = json->get<int64_t>();
  return ok_status();
}

Status Fields::texts(std::string_view name, size_t count_max, size_t bytes_max,
                     std::vector<std::string>& values) {
  const Json* json = find(name);
  if (json == nullptr) return ok_status();
  const Json list = json->is_array() ? *json : Json::array({*json});
  if (list.size() > count_max) {
    return wrong(name, "has " + std::to_string(list.size()) + " entries; at most " +
                           std::to_string(count_max) + " are allowed");
  }
  std::vector<std::string> texts;
  for (const Json& item : list) {
    if (!item.is_string()) return wrong(name, "must be a text or a list of texts");
    texts.push_back(item.get<std::string>());
    if (!texts.back().empty() && texts.back().size() <= bytes_max) continue;
    return wrong(name, "has a text of " + std::to_string(texts.back().size()) +
                           " bytes; each must have 1 to " + std::to_string(bytes_max));
  }
  values = std::move(texts);
  return ok_status();
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

Status Fields::refuse(std::string_view name, const char* why, const Json& allowed) {
  const Json* json = find(name);
  if (json == nullptr || *json == allowed) return ok_status();
  if (json->is_boolean() ? !json->get<bool>() : json->empty()) return ok_status();
  return wrong(name, why);
}

Status Fields::sampling(SamplingOptions& options, std::initializer_list<std::string_view> except) {
  std::vector<OptionEntry> entries;
  options.visit(OptionBinder(entries));
  for (const OptionEntry& entry : entries) {
    if (std::find(except.begin(), except.end(), entry.name) != except.end()) continue;
    const Json* json = find(entry.name);
    if (json == nullptr) continue;
    const Status status = entry.set_json(*json, "'" + entry.name + "'");
    if (status.ok()) continue;
    wrong_ = entry.name;
    return status;
  }
  return ok_status();
}

Status Fields::finish() {
  for (const auto& [name, value] : object_.items()) {
    if (known_.count(name) > 0) continue;
    wrong_ = where_ + name;
    return invalid_argument("there is no field '" + short_text(wrong_) + "'");
  }
  return ok_status();
}

}  // namespace kvikk
