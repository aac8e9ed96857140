#pragma once
// Reads the fields of a request's JSON object strictly: what is there must be known and right, or
// the request is refused with the field's name.

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kvikk/options.h"

namespace kvikk {

using Json = nlohmann::ordered_json;

class Fields {
 public:
  // `object` must be a JSON object and outlive this. `where` names it in messages: "messages[3].".
  explicit Fields(const Json& object, std::string where = {})
      : object_(object), where_(std::move(where)) {}

  // The value, or null where the field is absent or null. The field is then known.
  const Json* find(std::string_view name);
  // Each leaves `value` as it is where the field is absent or null.
  Status text(std::string_view name, std::string& value);
  Status flag(std::string_view name, bool& value);
  Status whole(std::string_view name, int64_t min, int64_t max, int64_t& value);
  // A text or a list of texts.
  Status texts(std::string_view name, size_t count_max, size_t bytes_max,
               std::vector<std::string>& values);
  // Fields that are known and change nothing.
  void ignore(std::initializer_list<std::string_view> names);
  // Refuses a field that asks for what is not there: anything but null, false, empty, or `allowed`.
  Status refuse(std::string_view name, const char* why, const Json& allowed = nullptr);
  // Sets every option of `options` that the object names; temperature, top_k ...
  Status sampling(SamplingOptions& options, std::initializer_list<std::string_view> except = {});

  // Refuses fields that nobody asked about.
  Status finish();

  // "'messages[3].role' must be WHAT"; remembers the name.
  Status wrong(std::string_view name, const std::string& what);
  // The status of reading an object inside; takes over which field was wrong.
  Status of_inner(const Fields& inner, Status status);
  // The field that was refused last.
  const std::string& wrong_field() const { return wrong_; }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
  std::string wrong_;
};

}  // namespace kvikk
