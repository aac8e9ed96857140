#include "weights/json_file.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/mapped_file.h"
#include "weights/gguf_parser.h"

namespace kvikk {
namespace {

using nlohmann::json;

// Watches the parser: keys that occur twice in one object, and depth. The parser itself does not
// recurse; what lies too deep is left out of its result, which is then not used.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, json& value) {
    const bool object = event == json::parse_event_t::object_start;
    const bool starts = object || event == json::parse_event_t::array_start;  // depth + 1 levels
    if (starts && static_cast<size_t>(depth) >= kModelJsonDepthMax) too_deep_ = true;
    if (too_deep_) return false;
    if (object) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second && duplicate_.empty()) duplicate_ = gguf::quoted(key);
    }
    return true;
  }

  Status status(const std::string& path) const {
    if (too_deep_) {
      return exhausted(path + ": nests deeper than " + std::to_string(kModelJsonDepthMax) +
                       " levels");
    }
    if (!duplicate_.empty()) {
      return damaged(path + ": key " + duplicate_ + " is there twice; each key may occur once");
    }
    return ok_status();
  }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string duplicate_;
  bool too_deep_ = false;
};

}  // namespace

Result<json> parse_json(const std::string& path, std::string_view text) {
  if (text.size() > kJsonBytesMax) {
    return exhausted(path + ": has " + gguf::grouped(text.size()) + " bytes; the limit is " +
                     gguf::grouped(kJsonBytesMax));
  }
  try {
    Watch watch;
    json value = json::parse(text.begin(), text.end(), std::ref(watch));
    TRY(watch.status(path));
    return value;
  } catch (const json::parse_error& error) {
    const std::string what = error.what();
    const size_t start = what.find("parse error");
    return damaged(path + ": is not valid JSON: byte " + gguf::grouped(error.byte) + ": " +
                   (start == std::string::npos ? what : what.substr(start)));
  } catch (const json::exception& error) {
    return damaged(path + ": is not valid JSON: " + error.what());
  }
}

Result<json> read_json_file(const std::string& path) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return parse_json(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace kvikk
