#pragma once
// Other people's ways to code a page of keys or values, to measure beside this program's own. They
// are plain references: a page is decoded to floats, and nothing is done to the keys before.

#include <cstdint>
#include <memory>

#include "kv/registry.h"

namespace kvikk {

// Codes the keys or the values of one page of one KV head.
class PartCodec {
 public:
  virtual ~PartCodec() = default;
  virtual size_t bytes() const = 0;  // of a page
  // x, out: [64 tokens, head_dim].
  virtual void encode(const float* x, uint8_t* coded) const = 0;
  virtual void decode(const uint8_t* coded, float* out) const = 0;
};

enum class KvPart : uint8_t { kKeys, kValues };

// For codings of other people (is_reference()). Errors: kInvalidArgument (it does not fit the head
// size).
Result<std::unique_ptr<PartCodec>> make_part_codec(const KvCodec& codec, KvPart part,
                                                   size_t head_dim, uint64_t seed);

}  // namespace kvikk
