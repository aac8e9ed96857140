#pragma once
// Multi-head latent attention (DeepSeek-V2, section 2.1), as a file declares it: keys and values of
// all heads come from one latent of a token, which is all that the cache holds.

#include <cstddef>

namespace kvikk {

struct MlaNames {
  const char* q_down = nullptr;  // hidden -> q_rank
  const char* q_norm = nullptr;
  const char* q_up = nullptr;  // q_rank (or hidden, where q_rank is 0) -> heads x (plain + rotary)
  const char* kv_down = nullptr;  // hidden -> rank + rotary
  const char* kv_norm = nullptr;
  const char* kv_up =
      nullptr;                 // rank -> heads x (plain + value): rows of a head's keys, its values
  const char* k_up = nullptr;  // in place of it: [heads][rank][plain], [heads][value][rank]
  const char* v_up = nullptr;
};

struct MlaConfig {
  size_t rank = 0;    // of the latent; 0: the model has ordinary attention
  size_t q_rank = 0;  // 0: queries come straight from the hidden state
  size_t plain = 0;   // dimensions of a head's query and key that do not rotate
  size_t rotary = 0;  // and those that do, shared by all heads' keys
  size_t value = 0;   // of a head
  MlaNames names;
};

}  // namespace kvikk
