#include "kv/registry.h"

namespace kvikk {

namespace {

constexpr KvCodec kQ8 = {"q8", KvCoding::kLargest, 8};
constexpr KvCodec kFit4 = {"fit4", KvCoding::kFitted, 4};
constexpr KvCodec kFit3 = {"fit3", KvCoding::kFitted, 3};
constexpr KvCodec kTurbo4 = {"turbo4", KvCoding::kSphere, 4};
constexpr KvCodec kTurbo3 = {"turbo3", KvCoding::kSphere, 3};
constexpr KvCodec kTurbo2 = {"turbo2", KvCoding::kSphere, 2};

constexpr KvCodec kTurbo35 = {"turbo3.5", KvCoding::kOutliers, 3};
constexpr KvCodec kTurbo25 = {"turbo2.5", KvCoding::kOutliers, 2};
constexpr KvCodec kTurbo4Prod = {"turbo4-prod", KvCoding::kProd, 4};
constexpr KvCodec kTurbo3Prod = {"turbo3-prod", KvCoding::kProd, 3};
constexpr KvCodec kKivi4 = {"kivi4", KvCoding::kKivi, 4};
constexpr KvCodec kKivi2 = {"kivi2", KvCoding::kKivi, 2};
constexpr KvCodec kPolar4 = {"polar4", KvCoding::kPolar, 4};
constexpr KvCodec kPolar3 = {"polar3", KvCoding::kPolar, 3};
constexpr KvCodec kQ4Hadamard = {"q4-hadamard", KvCoding::kHadamard, 4};
constexpr KvCodec kF16 = {"f16", KvCoding::kHalf, 16};

constexpr const KvCodec* kCodecs[] = {
    &kQ8,         &kFit4,       &kFit3,  &kTurbo4, &kTurbo3, &kTurbo2, &kTurbo35,    &kTurbo25,
    &kTurbo4Prod, &kTurbo3Prod, &kKivi4, &kKivi2,  &kPolar4, &kPolar3, &kQ4Hadamard, &kF16};

// [KvEviction - 1]
constexpr std::string_view kEvictionNames[] = {"streaming", "snapkv", "pyramidkv"};

const KvCodec* find_codec(std::string_view name) {
  for (const KvCodec* codec : kCodecs) {
    if (codec->name == name) return codec;
  }
  return nullptr;
}

}  // namespace

std::span<const KvCodec* const> kv_codecs() { return kCodecs; }
std::span<const std::string_view> kv_eviction_names() { return kEvictionNames; }

std::string KvChoice::name() const {
  if (eviction != KvEviction::kNone) {
    return std::string(kEvictionNames[static_cast<size_t>(eviction) - 1]);
  }
  if (!coded()) return exact == KvFormat::kF32 ? "f32" : "bf16";
  if (keys == values) return std::string(keys->name);
  return std::string(keys->name) + "/" + std::string(values->name);
}

Result<KvChoice> parse_kv(std::string_view text, KvFormat exact) {
  KvChoice choice;
  choice.exact = exact;
  if (text.empty()) return choice;
  if (text == "bf16" || text == "f32") {
    choice.exact = text == "f32" ? KvFormat::kF32 : KvFormat::kBF16;
    return choice;
  }
  for (size_t i = 0; i < std::size(kEvictionNames); ++i) {
    if (text != kEvictionNames[i]) continue;
    choice.eviction = static_cast<KvEviction>(i + 1);
    return choice;
  }
  const size_t slash = text.find('/');
  choice.keys = find_codec(text.substr(0, slash));
  choice.values =
      slash == std::string_view::npos ? choice.keys : find_codec(text.substr(slash + 1));
  if (choice.keys != nullptr && choice.values != nullptr) return choice;
  std::string names = "bf16, f32";
  for (const KvCodec* codec : kCodecs) names += ", " + std::string(codec->name);
  return invalid_argument("kv '" + std::string(text) + "' is not known; it can be " + names +
                          ", or two of these but the first two as KEYS/VALUES, or streaming, "
                          "snapkv, pyramidkv");
}

}  // namespace kvikk
