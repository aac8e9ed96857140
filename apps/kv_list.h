#pragma once
// --kv of the verbs that compare caches: several at once.

#include <string>
#include <vector>

#include "base/status.h"

namespace kvikk {

inline constexpr size_t kKvListMax = 32;

// "A,B,.." each checked; empty: one empty name, the default cache.
Result<std::vector<std::string>> split_kv_list(const std::string& text);

}  // namespace kvikk
