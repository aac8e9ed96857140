#pragma once
// The encodings of the key-value cache by name. Keys and values are chosen apart: "turbo4" is short
// for "turbo4/turbo4", "q8/turbo4" keeps keys at 8 bits and values at 4.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/kernels.h"

namespace kvikk {

// How a rotated vector becomes codes.
enum class KvCoding : uint8_t {
  kLargest,  // even steps up to the largest coordinate
  kSphere,   // TurboQuant: the codebook of a random unit vector's coordinate
  kFitted,   // keys: a basis fitted to queries and keys, bits where the scores need them;
             // values: as kSphere
  // Of other people, to compare with: part_codec.h.
  kProd,      // TurboQuant with a bit for the inner product; values: as kSphere
  kOutliers,  // TurboQuant with a quarter of the dims at one bit more
  kKivi,
  kPolar,
  kHadamard,
  kHalf,  // a 16-bit float
};

inline constexpr bool is_reference(KvCoding coding) { return coding >= KvCoding::kProd; }

// Other people's caches that keep exact tokens, but not all of a prompt's: token_evictor.h.
enum class KvEviction : uint8_t { kNone, kStreaming, kSnap, kPyramid };
// The share of a prompt that they keep: one in so many, as many bytes as codes of 4 bits.
inline constexpr size_t kEvictionKeepsOneIn = 4;

struct KvCodec {
  std::string_view name;
  KvCoding coding;
  uint32_t bits;  // a coordinate; on average where they differ, of kOutliers the fewest
};

std::span<const KvCodec* const> kv_codecs();
// Of the caches that evict tokens.
std::span<const std::string_view> kv_eviction_names();

// In place of a cache's name: the smallest that stays true (engine/choose_kv.h).
inline constexpr std::string_view kKvAuto = "auto";

// What --kv asks for. Exact caches have no codec.
struct KvChoice {
  KvFormat exact = KvFormat::kBF16;  // of the cache, or of its exact pages
  const KvCodec* keys = nullptr;
  const KvCodec* values = nullptr;
  KvEviction eviction = KvEviction::kNone;  // of exact caches

  bool coded() const { return keys != nullptr; }
  // Whether anything is measured of keys and done to them before they are coded.
  bool conditions_keys() const { return coded() && !is_reference(keys->coding); }
  std::string name() const;
};

// `text`: bf16, f32, a codec, codecs of keys and values with '/' between them, or a cache that
// evicts tokens. Empty: the exact cache `exact`. Errors: kInvalidArgument with the names that there
// are.
Result<KvChoice> parse_kv(std::string_view text, KvFormat exact);

}  // namespace kvikk
