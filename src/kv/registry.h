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
};

inline constexpr bool is_reference(KvCoding coding) { return coding >= KvCoding::kProd; }

struct KvCodec {
  std::string_view name;
  KvCoding coding;
  uint32_t bits;  // a coordinate; on average where they differ, of kOutliers the fewest
};

std::span<const KvCodec* const> kv_codecs();

// In place of a cache's name: the smallest that stays true (engine/choose_kv.h).
inline constexpr std::string_view kKvAuto = "auto";

// What --kv asks for. Exact caches have no codec.
struct KvChoice {
  KvFormat exact = KvFormat::kBF16;  // of the cache, or of its exact pages
  const KvCodec* keys = nullptr;
  const KvCodec* values = nullptr;

  bool coded() const { return keys != nullptr; }
  // Whether anything is measured of keys and done to them before they are coded.
  bool conditions_keys() const { return coded() && !is_reference(keys->coding); }
  std::string name() const;
};

// `text`: bf16, f32, a codec, or codecs of keys and values with '/' between them. Empty: the exact
// cache `exact`. Errors: kInvalidArgument with the names that there are.
Result<KvChoice> parse_kv(std::string_view text, KvFormat exact);

}  // namespace kvikk
