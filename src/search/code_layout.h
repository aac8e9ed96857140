#pragma once
// Which dims get how many bits, where their planes lie in a block (kernels/search.h), and the
// integer levels that stand for the codebooks' levels in products.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codec/codebook.h"
#include "kernels/search.h"

namespace kvikk {

inline constexpr size_t kCodeGroupsMax = 128;
inline constexpr float kCodeLevelMax = 16.0f;  // of a codebook, in standard deviations

// Dims that share a codebook. Those with 0 bits are not kept at all and have no group.
struct CodeGroup {
  size_t dims = 0;   // of the vector; the planes have the next multiple of 32
  size_t bits = 0;   // 1 to 6, or 8
  double sigma = 0;  // standard deviation of a dim
  size_t padded() const { return (dims + kSearchDims - 1) / kSearchDims * kSearchDims; }
};

class CodeLayout {
 public:
  // One codebook a number of bits that occurs. `dimensions` of the space, for its density.
  static CodeLayout make(std::vector<CodeGroup> groups, size_t dimensions);
  // With codebooks that were made before; books[bits] is used. Errors: kDamaged.
  static Result<CodeLayout> restore(std::vector<CodeGroup> groups, std::vector<Codebook> books);

  const std::vector<CodeGroup>& groups() const { return groups_; }
  const Codebook& book(const CodeGroup& group) const { return books_[group.bits]; }
  const std::vector<Codebook>& books() const { return books_; }  // [9], empty where unused

  size_t dims() const { return dims_; }           // of the vector, of all groups
  size_t padded_dims() const { return padded_; }  // of all groups' planes
  size_t top_bytes() const { return top_bytes_; }
  size_t rest_bytes() const { return rest_bytes_; }
  size_t block_bytes() const { return top_bytes_ + rest_bytes_; }

  // What a scan reads: whole codes; or the top planes alone, with the levels of what is left open.
  const std::vector<SearchGroup>& whole() const { return whole_; }
  const std::vector<SearchGroup>& top() const { return top_; }
  // A query's coordinate is multiplied by it before it is rounded: the value of one step of an
  // integer level of the group. [groups]
  const std::vector<float>& whole_units() const { return whole_units_; }
  const std::vector<float>& top_units() const { return top_units_; }

  // Codes of vector `lane` of a block, groups one after the other without padding: [dims()].
  void put(const uint8_t* codes, size_t lane, uint8_t* top, uint8_t* rest) const;
  void get(const uint8_t* top, const uint8_t* rest, size_t lane, uint8_t* codes) const;

 private:
  void place();

  std::vector<CodeGroup> groups_;
  std::vector<Codebook> books_;
  std::vector<SearchGroup> whole_, top_;
  std::vector<float> whole_units_, top_units_;
  size_t dims_ = 0, padded_ = 0, top_bytes_ = 0, rest_bytes_ = 0;
};

}  // namespace kvikk
