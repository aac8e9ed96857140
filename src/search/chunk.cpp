#include "search/chunk.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codec/half_scale.h"

namespace kvikk {

namespace {

constexpr size_t kAlign = 64;
constexpr size_t kKeptHashBytes = 4;
// Chunks of so many bytes lie on the heap: a mapping of its own for each is more than the system
// allows when there are many lists.
constexpr size_t kSmallBytes = size_t{1} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
size_t blocks_of(size_t rows) { return (rows + kSearchBlock - 1) / kSearchBlock; }

uint32_t kept_hash(const uint8_t* bytes, size_t count) {
  return static_cast<uint32_t>(XXH3_64bits(bytes, count));
}

uint16_t to_half(float x) {
  const uint16_t magnitude = scale_to_half(std::abs(x));
  return static_cast<uint16_t>(magnitude | (std::signbit(x) ? 0x8000u : 0u));
}

// Without branches, so that it is done for many at once. Kept numbers are finite.
float finite_half_to_float(uint16_t half) {
  const float magnitude = std::bit_cast<float>((half & 0x7fffu) << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (half & 0x8000u) << 16);
}

// One array after the other in a chunk's core, each at a multiple of 64 bytes.
class Cutter {
 public:
  explicit Cutter(uint8_t* at) : at_(at) {}
  template <class T>
  T* take(size_t count) {
    T* const out = reinterpret_cast<T*>(at_);
    at_ += aligned(count * sizeof(T));
    return out;
  }

 private:
  uint8_t* at_;
};

}  // namespace

size_t ChunkShape::kept_bytes() const {
  if (kept == KeptVectors::kHalf) return dimensions * 2 + kKeptHashBytes;
  if (kept == KeptVectors::kInt8) return dimensions + sizeof(float) + kKeptHashBytes;
  return 0;
}

size_t ChunkShape::core_bytes(size_t blocks) const {
  const size_t rows = blocks * kSearchBlock;
  return aligned(blocks * top_bytes) + aligned(blocks * rest_bytes) +
         aligned(rows * sizeof(uint16_t)) + (norms ? aligned(rows * sizeof(float)) : 0) +
         aligned(rows * sizeof(int64_t)) + aligned(attributes * rows * sizeof(int64_t));
}

void Chunk::place(uint8_t* core) {
  Cutter cutter(core);
  const size_t blocks = rows_max_ / kSearchBlock;
  top_ = cutter.take<uint8_t>(blocks * shape_.top_bytes);
  rest_ = cutter.take<uint8_t>(blocks * shape_.rest_bytes);
  scales_ = cutter.take<uint16_t>(rows_max_);
  if (shape_.norms) norms_ = cutter.take<float>(rows_max_);
  ids_ = cutter.take<int64_t>(rows_max_);
  attributes_ = cutter.take<int64_t>(shape_.attributes * rows_max_);
}

Result<std::shared_ptr<Chunk>> Chunk::allocate(const ChunkShape& shape, size_t rows_max) {
  rows_max = blocks_of(rows_max) * kSearchBlock;
  std::shared_ptr<Chunk> chunk(new Chunk(shape, rows_max));
  const size_t bytes = shape.core_bytes(rows_max / kSearchBlock);
  if (bytes + rows_max * shape.kept_bytes() <= kSmallBytes) {
    chunk->small_.resize(bytes + kAlign + rows_max * shape.kept_bytes());
    auto at = reinterpret_cast<uintptr_t>(chunk->small_.data());
    uint8_t* const core = chunk->small_.data() + (kAlign - at % kAlign) % kAlign;
    chunk->place(core);
    chunk->kept_ = core + bytes;
    return chunk;
  }
  TRY_ASSIGN(chunk->memory_, Buffer::allocate(bytes));
  chunk->place(chunk->memory_.data());
  if (shape.kept != KeptVectors::kNone) {
    TRY_ASSIGN(chunk->kept_memory_, Buffer::allocate(rows_max * shape.kept_bytes()));
    chunk->kept_ = chunk->kept_memory_.data();
  }
  return chunk;
}

std::shared_ptr<Chunk> Chunk::over(const ChunkShape& shape, size_t rows,
                                   std::shared_ptr<const MappedFile> file, const uint8_t* core,
                                   const uint8_t* kept, uint64_t hash, std::string where) {
  std::shared_ptr<Chunk> chunk(new Chunk(shape, blocks_of(rows) * kSearchBlock));
  chunk->file_ = std::move(file);
  chunk->hash_ = hash;
  chunk->where_ = std::move(where);
  chunk->checked_ = false;
  // Mapped read-only; put() is never called on such a chunk.
  chunk->place(const_cast<uint8_t*>(core));
  chunk->kept_ = const_cast<uint8_t*>(kept);
  return chunk;
}

Chunk::~Chunk() { delete[] died_.load(); }

void Chunk::bury(size_t row, uint64_t version) {
  std::atomic<uint64_t>* died = died_.load(std::memory_order_relaxed);
  if (died == nullptr) {
    died = new std::atomic<uint64_t>[rows_max_];
    for (size_t i = 0; i < rows_max_; ++i) died[i].store(kAlive, std::memory_order_relaxed);
    died_.store(died, std::memory_order_release);
  }
  died[row].store(version, std::memory_order_release);
}

Status Chunk::check() const {
  if (checked_.load(std::memory_order_acquire)) return ok_status();
  // Two threads may do it at once; they find the same.
  const size_t bytes = shape_.core_bytes(rows_max_ / kSearchBlock);
  if (XXH3_64bits(top_, bytes) != hash_) {
    return damaged(where_ + " is not what was written: its checksum differs");
  }
  checked_.store(true, std::memory_order_release);
  return ok_status();
}

void Chunk::put(const CodeLayout& layout, size_t row, const CodedVector& vector, int64_t id,
                const int64_t* attributes, const uint8_t* kept) {
  const size_t block = row / kSearchBlock;
  layout.put(vector.codes.data(), row % kSearchBlock, top_ + block * shape_.top_bytes,
             rest_ + block * shape_.rest_bytes);
  scales_[row] = vector.scale;
  if (norms_ != nullptr) norms_[row] = vector.norm;
  ids_[row] = id;
  for (size_t a = 0; a < shape_.attributes; ++a) attributes_[a * rows_max_ + row] = attributes[a];
  if (kept != nullptr) std::memcpy(kept_ + row * shape_.kept_bytes(), kept, shape_.kept_bytes());
}

void Chunk::clear_blocks(size_t block, size_t blocks) {
  std::memset(top_ + block * shape_.top_bytes, 0, blocks * shape_.top_bytes);
  std::memset(rest_ + block * shape_.rest_bytes, 0, blocks * shape_.rest_bytes);
}

void Chunk::copy_blocks(const Chunk& from, size_t block, size_t rows, size_t to) {
  const size_t blocks = blocks_of(rows);
  const size_t source = block * kSearchBlock;
  const size_t target = to * kSearchBlock;
  const auto copy = [](auto* out, const auto* in, size_t count) {
    if (count > 0) std::memcpy(out, in, count * sizeof *in);
  };
  copy(top_ + to * shape_.top_bytes, from.top(block), blocks * shape_.top_bytes);
  copy(rest_ + to * shape_.rest_bytes, from.rest(block), blocks * shape_.rest_bytes);
  copy(scales_ + target, from.scales_ + source, rows);
  if (norms_ != nullptr) copy(norms_ + target, from.norms_ + source, rows);
  copy(ids_ + target, from.ids_ + source, rows);
  for (size_t a = 0; a < shape_.attributes; ++a) {
    copy(attributes_ + a * rows_max_ + target, from.attribute(a) + source, rows);
  }
  if (shape_.kept != KeptVectors::kNone) {
    copy(kept_ + target * shape_.kept_bytes(), from.kept(source), rows * shape_.kept_bytes());
  }
  for (size_t i = 0; from.has_dead() && i < rows; ++i) {
    if (from.died(source + i) != kAlive) bury(target + i, from.died(source + i));
  }
}

void Chunk::write_core(size_t blocks, uint8_t* out) const {
  const size_t rows = blocks * kSearchBlock;
  const auto append = [&](const void* bytes, size_t count) {
    if (count > 0) std::memcpy(out, bytes, count);
    out += aligned(count);
  };
  append(top_, blocks * shape_.top_bytes);
  append(rest_, blocks * shape_.rest_bytes);
  append(scales_, rows * sizeof(uint16_t));
  if (norms_ != nullptr) append(norms_, rows * sizeof(float));
  append(ids_, rows * sizeof(int64_t));
  for (size_t a = 0; a < shape_.attributes; ++a) {  // [attributes, rows], aligned as a whole
    std::memcpy(out + a * rows * sizeof(int64_t), attribute(a), rows * sizeof(int64_t));
  }
}

CodedVector Chunk::get(const CodeLayout& layout, size_t row) const {
  CodedVector out;
  out.codes.resize(layout.dims());
  const size_t block = row / kSearchBlock;
  layout.get(top(block), rest(block), row % kSearchBlock, out.codes.data());
  out.scale = scales_[row];
  out.norm = norms_ == nullptr ? 0 : norms_[row];
  return out;
}

void put_kept(KeptVectors kept, const float* vector, size_t dimensions, uint8_t* out) {
  size_t bytes = 0;
  if (kept == KeptVectors::kHalf) {
    for (size_t i = 0; i < dimensions; ++i) {
      const uint16_t half = to_half(vector[i]);
      std::memcpy(out + 2 * i, &half, sizeof half);
    }
    bytes = 2 * dimensions;
  } else {
    float largest = 0;
    for (size_t i = 0; i < dimensions; ++i) largest = std::max(largest, std::abs(vector[i]));
    const float step = largest / 127;
    for (size_t i = 0; i < dimensions; ++i) {
      const float code = step > 0 ? std::nearbyint(vector[i] / step) : 0.0f;
      out[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f)));
    }
    std::memcpy(out + dimensions, &step, sizeof step);
    bytes = dimensions + sizeof step;
  }
  const uint32_t hash = kept_hash(out, bytes);
  std::memcpy(out + bytes, &hash, sizeof hash);
}

Status get_kept(KeptVectors kept, const uint8_t* bytes, size_t dimensions, float* out) {
  const size_t count = kept == KeptVectors::kHalf ? 2 * dimensions : dimensions + sizeof(float);
  uint32_t hash = 0;
  std::memcpy(&hash, bytes + count, sizeof hash);
  if (hash != kept_hash(bytes, count)) {
    return damaged("a kept vector is not what was written: its checksum differs");
  }
  if (kept == KeptVectors::kHalf) {
    for (size_t i = 0; i < dimensions; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, bytes + 2 * i, sizeof half);
      out[i] = finite_half_to_float(half);
    }
    return ok_status();
  }
  float step = 0;
  std::memcpy(&step, bytes + dimensions, sizeof step);
  for (size_t i = 0; i < dimensions; ++i) {
    out[i] = static_cast<float>(static_cast<int8_t>(bytes[i])) * step;
  }
  return ok_status();
}

}  // namespace kvikk
