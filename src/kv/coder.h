#pragma once
// A coded key-value cache: how a page of 64 exact keys and values becomes codes, and how a query
// meets them without a key ever being restored.
//
// A key k of a head at position j is stored as the codes of H B^-1 (k - R_j m - c): m is a mean
// from before the rotary embedding R_j, c one from after it, B a balance between queries and keys,
// H a random rotation. Its score is
//     q.k = (H B q).codes + q.R_j m + q.c
// where q.R_j m is a sum of cosines over the pairs of dims that rotate together: inside a page
// their angles advance by a table that is the same for every page, and a page turns the two
// coefficients of a pair by its own angle. Pairs that hardly turn within a page share one
// polynomial. Nothing of m or c is stored with a token. Values are stored as codes of H v; their
// weighted sum is rotated back once.
//
// What a query at position t reads as codes is a function of the page alone: the first page and
// the pages t / 64 and t / 64 - 1 are exact, all between them are codes. A page is coded when its
// last token is stored: a token taken back leaves no trace.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "codec/codebook.h"
#include "codec/rotation.h"
#include "kernels/coded_page.h"
#include "kernels/kernels.h"
#include "kv/part_codec.h"
#include "kv/registry.h"

namespace kvikk {

// Pages of the past that are exact, besides the first one: the one underway and one before it.
inline constexpr size_t kExactPages = 2;
inline constexpr size_t kExactWindow = kExactPages * kPageTokens;  // in tokens
// Tokens that can be taken back at once at any time.
inline constexpr size_t kTakeBackMax = kPageTokens;

// Whether a query in page `query_page` reads page `page` as codes.
inline constexpr bool reads_codes(size_t page, size_t query_page) {
  return page > 0 && page + kExactPages <= query_page;
}

// The rotary embedding of a kind of layers.
struct KvRope {
  RopeStyle style = RopeStyle::kHalves;
  std::vector<float> frequencies;  // [rotary / 2]: the angle of pair i at position j is j * f[i]
};

// The keys of one layer and KV head; whatever is empty is not done.
struct KeyConditioning {
  std::vector<float> rope_mean;  // m [head_dim]; zeros beyond the rotary dims
  std::vector<float> mean;       // c [head_dim]
  std::vector<float> balance;    // B [head_dim], positive, equal within a rotary pair
  // A fitted basis instead of B and H: y = forward (k - ...), with groups of 16 coordinates in
  // descending order of bits.
  std::vector<float> forward;    // [head_dim, head_dim]; inside a KvCoder transposed
  std::vector<float> backward;   // the same: its inverse transposed, for queries
  std::vector<float> deviation;  // [head_dim] of each coordinate of y
  CodedLayout layout;
};

struct KvCoderOptions {
  KvChoice choice;
  size_t head_dim = 0;  // of keys and of values
  size_t layers = 0;
  size_t kv_heads = 0;
  size_t context = 0;            // positions
  std::vector<KvRope> ropes;     // kinds
  std::vector<size_t> rope_of;   // [layers]
  uint64_t seed = 0x6b76696b6b;  // of the rotations
  // [layers x kv_heads], or empty: without.
  std::vector<KeyConditioning> conditioning;
};

// The key or value of a token of an exact page (kernels.h), which has `width` dims: out [size].
void load_exact_key(const uint8_t* keys, KvFormat format, size_t token, size_t size, size_t width,
                    float* out);
void load_exact_value(const uint8_t* values, KvFormat format, size_t token, size_t size,
                      size_t width, float* out);

// The two dims of rotary pair `i`.
struct RotaryPair {
  size_t first, second;
};
inline RotaryPair rotary_pair(RopeStyle style, size_t i, size_t pairs) {
  return style == RopeStyle::kHalves ? RotaryPair{i, i + pairs} : RotaryPair{2 * i, 2 * i + 1};
}

class KvCoder {
 public:
  // Errors: kInvalidArgument where the codec does not fit the head size.
  static Result<std::shared_ptr<const KvCoder>> create(KvCoderOptions options);

  const KvChoice& choice() const { return options_.choice; }
  // Everything that decides what codes mean, for the header of a saved cache.
  const std::string& identity() const { return identity_; }
  bool conditioned() const { return !options_.conditioning.empty(); }
  // This coder, which has no conditioning, with some: [layers x kv_heads].
  std::shared_ptr<const KvCoder> conditioned(std::vector<KeyConditioning> all) const;

  size_t page_bytes() const { return key_bytes_ + value_bytes_; }
  // Whether queries can meet the codes without floats between.
  bool in_integers() const { return key_part_ == nullptr && value_part_ == nullptr; }
  // Dims of a key as a query meets it, a multiple of 16: the codes, then 1, then cosines and sines.
  size_t attend_dim() const { return width_ + extra_; }
  static size_t attend_dim_max(size_t head_dim, size_t rotary) {
    return (head_dim + 15) / 16 * 16 + (1 + rotary + 15) / 16 * 16;
  }
  size_t width() const { return width_; }

  // Codes the exact page (kv_part layouts of `format`) with number `page`.
  void seal(KvFormat format, const uint8_t* exact, size_t layer, size_t kv_head, size_t page,
            uint8_t* coded) const;

  // What a query multiplies: out [query_floats()].
  size_t query_floats() const { return width_ + 1 + 2 * pairs_max_; }
  void prepare_query(size_t layer, size_t kv_head, const float* query, float* out) const;
  // A prepared query for one page: out [attend_dim()].
  void query_for_page(size_t layer, size_t kv_head, const float* prepared, size_t page,
                      float* out) const;

  // The same in integers: bytes [2][width()], high and low; sums [2]. Returns the scale.
  float query_bytes(size_t layer, size_t kv_head, const float* prepared, int8_t* bytes,
                    int32_t* sums) const;
  // Whether codes are fine enough for the low bytes to matter.
  bool two_halves() const { return options_.choice.keys->bits == 8; }
  // What joins the scores (CodedAttendArgs): a prepared query has it from terms_offset() on.
  bool has_terms() const { return extra_ > 0; }
  PositionTerm position_term(size_t layer, size_t kv_head) const;
  size_t terms_offset() const { return width_; }
  size_t terms_pairs() const { return pairs_max_; }
  // [cosines, sines][pairs of the layer's rotary embedding] of the middle of a page; null where no
  // head has a position term.
  const float* page_turn(size_t layer, size_t page) const {
    if (pairs_max_ == 0) return nullptr;
    const size_t kind = options_.rope_of[layer];
    return tables_[kind].pages.data() + page * 2 * options_.ropes[kind].frequencies.size();
  }
  const CodedLayout& keys_of(size_t layer, size_t kv_head) const {
    return key_layout(layer, kv_head);
  }
  const CodedLayout& values() const { return value_layout_; }
  size_t value_offset() const { return key_bytes_; }

  // A page of float32 keys [4][attend_dim()][16] whose dims beyond the codes are constant.
  void fill_constant_dims(size_t layer, size_t kv_head, float* keys) const;
  void decode(const Kernels& kernels, size_t layer, size_t kv_head, const uint8_t* coded,
              float* keys, float* values) const;
  // The weighted sum of coded values back to the values' own dims; in place, [width()].
  void restore_values(float* sum) const;

 private:
  explicit KvCoder(KvCoderOptions options);
  Status plan();
  Status plan_parts();
  void plan_conditioning();
  void plan_fitted();
  void plan_pairs();
  void make_identity();
  const KeyConditioning* conditioning(size_t layer, size_t kv_head) const {
    if (options_.conditioning.empty()) return nullptr;
    return &options_.conditioning[layer * options_.kv_heads + kv_head];
  }
  const CodedLayout& key_layout(size_t layer, size_t kv_head) const {
    return fitted_ ? conditioning(layer, kv_head)->layout : key_layout_;
  }
  const KvRope& rope_of(size_t layer) const { return options_.ropes[options_.rope_of[layer]]; }
  void remove_position(size_t layer, size_t kv_head, size_t page, size_t token, float* key) const;
  double code_coordinate(uint32_t bits, const CodedLayout& layout, float x, uint8_t& code) const;
  float code_fitted(const KeyConditioning& c, const float* key, uint8_t* codes) const;

  KvCoderOptions options_;
  size_t width_ = 0;      // head_dim rounded up to 16
  size_t extra_ = 0;      // a multiple of 16
  size_t pairs_max_ = 0;  // of a head's position term
  bool fitted_ = false;
  CodedLayout key_layout_, value_layout_;
  size_t key_bytes_ = 0, value_bytes_ = 0;
  // In place of the layouts where the coding is other people's.
  std::shared_ptr<const PartCodec> key_part_, value_part_;
  std::string identity_;
  std::array<Codebook, kCodebookBitsMax + 1> books_;  // by bits; those that are used
  std::vector<Codebook> fitted_books_;                // by bits
  std::optional<Rotation> key_rotation_, value_rotation_;
  struct AngleTables {
    std::vector<float> pages;   // [pages][cosines, sines][pairs]: of the middle of each page
    std::vector<float> tokens;  // [cosines, sines][pairs][64]: from there to each token
    std::vector<float> powers;  // PositionTerm::powers
  };
  std::vector<AngleTables> tables_;           // [ropes]; empty where there is no position term
  std::vector<std::vector<uint32_t>> pairs_;  // [layers x kv_heads]: of position terms, fast first
  std::vector<size_t> fast_pairs_;            // [layers x kv_heads]
};

}  // namespace kvikk
