#include "kv_list.h"

#include <algorithm>

#include "kv/registry.h"

namespace kvikk {

Result<std::vector<std::string>> split_kv_list(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    names.push_back(text.substr(at, comma - at));
    TRY(parse_kv(names.back(), KvFormat::kBF16).status());
    at = comma + 1;
  }
  if (names.size() > kKvListMax) {
    return invalid_argument("--kv lists " + std::to_string(names.size()) + " caches; at most " +
                            std::to_string(kKvListMax));
  }
  return names;
}

}  // namespace kvikk
