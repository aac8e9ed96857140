#pragma once

#include <cstdint>

namespace kvikk {

// An index into a model's vocabulary. Never negative once validated.
using TokenId = int32_t;

}  // namespace kvikk
