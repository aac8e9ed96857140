#pragma once
// The parts of the safetensors reader that safetensors.cpp puts together: one file's bytes to its
// tensors, and pairs of tensors to one with scales. Not for use outside of this folder.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "weights/tensor_source.h"

namespace kvikk::safetensors {

// Limits. The largest models have some 100,000 tensors.
inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own
inline constexpr uint64_t kTensorsMax = 1 << 20;
inline constexpr uint64_t kNameBytesMax = 1024;
inline constexpr uint64_t kDimensionsMax = 8;
inline constexpr uint64_t kFilesMax = 4096;

// The tensors of one file in the header's order, their bytes inside `bytes`.
Result<std::vector<StoredTensor>> parse_file(const std::string& path,
                                             std::span<const uint8_t> bytes);

// Joins pairs (safetensors.h); `block_rows` x `block_columns` are those of FP8 scales.
Status join_pairs(const std::string& path, uint64_t block_rows, uint64_t block_columns,
                  std::vector<StoredTensor>& tensors);

// "[64 x 96]", outermost first, as such files say it.
std::string shape_text(const std::vector<uint64_t>& shape);

}  // namespace kvikk::safetensors
