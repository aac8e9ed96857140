// Search over coded vectors in plain C++: the reference for the other levels.

#include <bit>

#include "kernels/kernels.h"
#include "kernels/search.h"

namespace kvikk::scalar {

void fill_search(Kernels& kernels);

namespace {

unsigned bits_of_two(const uint8_t* plane, size_t dim, size_t vector) {
  const size_t j = dim % 16 / 4;
  return plane[dim / 16 * 64 + vector * 4 + dim % 4] >> 2 * j & 3u;
}

unsigned bit_of_one(const uint8_t* plane, size_t dim, size_t vector) {
  const size_t j = dim % 16 / 4;
  const size_t bit = dim % 32 / 16 * 2 + j % 2 + j / 2 * 4;
  return plane[dim / 32 * 64 + vector * 4 + dim % 4] >> bit & 1u;
}

unsigned code_at(const SearchGroup& group, const uint8_t* top, const uint8_t* rest, size_t dim,
                 size_t vector) {
  const uint8_t* plane = top + group.top;
  if (group.bits == 1) return bit_of_one(plane, dim, vector);
  unsigned code = bits_of_two(plane, dim, vector);
  plane = rest + group.rest;
  for (size_t left = group.bits - 2u; left > 0; left -= left > 1 ? 2 : 1) {
    code = left > 1 ? code << 2 | bits_of_two(plane, dim, vector)
                    : code << 1 | bit_of_one(plane, dim, vector);
    plane += search_plane_bytes(group.dims, left > 1);
  }
  return code;
}

constexpr size_t kPieceDims = 64;

// The levels, less 128, of `dims` dims of one block's group, from dim `first` on: [dims, 16].
void decode(const SearchGroup& group, const uint8_t* top, const uint8_t* rest, size_t first,
            size_t dims, int16_t* levels) {
  for (size_t i = 0; i < dims; ++i) {
    for (size_t v = 0; v < kSearchBlock; ++v) {
      const unsigned code = code_at(group, top, rest, first + i, v);
      const int level = group.bits == 8 ? static_cast<int>(code) : group.table[code];
      levels[i * kSearchBlock + v] = static_cast<int16_t>(level - 128);
    }
  }
}

// Adds the products of `dims` dims to dots [queries, 16]. first: of the dims in the queries.
void add_products(const SearchScanArgs& args, size_t first, size_t dims, const int16_t* levels,
                  int32_t (*dots)[kSearchBlock]) {
  for (size_t q = 0; q < args.query_count; ++q) {
    const int8_t* query = args.queries + q * args.query_stride + first;
    for (size_t i = 0; i < dims; ++i) {
      for (size_t v = 0; v < kSearchBlock; ++v) {
        dots[q][v] += levels[i * kSearchBlock + v] * query[i];
      }
    }
  }
}

void scan(const SearchScanArgs& args) {
  for (size_t block = 0; block < args.blocks; ++block) {
    const uint8_t* top = args.top + block * args.top_stride;
    const uint8_t* rest = args.rest == nullptr ? nullptr : args.rest + block * args.rest_stride;
    int32_t dots[kSearchQueriesMax][kSearchBlock] = {};
    for (size_t q = 0; q < args.query_count; ++q) {
      float* sums = args.sums + q * args.sum_stride + block * kSearchBlock;
      for (size_t v = 0; v < kSearchBlock; ++v) sums[v] = args.first[q];
    }
    size_t dim = 0;
    size_t number = 0;  // of the class
    for (size_t g = 0; g < args.group_count; ++g) {
      const SearchGroup& group = args.groups[g];
      // A piece of the group at a time: groups have any number of dims, the stack has not.
      for (size_t done = 0; done < group.dims; done += kPieceDims) {
        const size_t dims = group.dims - done < kPieceDims ? group.dims - done : kPieceDims;
        int16_t levels[kPieceDims * kSearchBlock];
        decode(group, top, rest, done, dims, levels);
        add_products(args, dim + done, dims, levels, dots);
      }
      dim += group.dims;
      if (!group.ends_class) continue;
      for (size_t q = 0; q < args.query_count; ++q) {
        float* sums = args.sums + q * args.sum_stride + block * kSearchBlock;
        const float step = args.steps[q * args.classes + number];
        for (size_t v = 0; v < kSearchBlock; ++v) {
          sums[v] = sums[v] + static_cast<float>(dots[q][v]) * step;
          dots[q][v] = 0;
        }
      }
      ++number;
    }
  }
}

float scale_of(uint16_t bits) {
  return bits == 0 ? 0.0f : std::bit_cast<float>((static_cast<uint32_t>(bits) << 13) + (96u << 23));
}

void select(const SearchSelectArgs& args) {
  for (size_t block = 0; block < args.blocks; ++block) {
    unsigned mask = 0;
    for (size_t v = 0; v < kSearchBlock; ++v) {
      const size_t i = block * kSearchBlock + v;
      float score = args.sums[i] * scale_of(args.scales[i]);
      score = score + args.constant;
      if (args.norms != nullptr) score = score - args.norms[i];
      args.scores[i] = score;
      if (score >= args.threshold) mask |= 1u << v;
    }
    args.masks[block] = static_cast<uint16_t>(mask);
  }
}

void product(const SearchProductArgs& args) {
  for (size_t r = 0; r < args.rows; ++r) {
    float* out = args.out + r * args.out_stride;
    const float* a = args.a + r * args.a_stride;
    for (size_t j = 0; j < args.columns; ++j) out[j] = 0;
    for (size_t k = 0; k < args.k; ++k) {
      const float* b = args.b + k * args.b_stride;
      for (size_t j = 0; j < args.columns; ++j) out[j] = out[j] + a[k] * b[j];
    }
  }
}

void codes(const SearchCodesArgs& args) {
  for (size_t i = 0; i < args.count; ++i) {
    const float x = args.x[i] * args.factor;
    unsigned code = 0;
    for (size_t t = 0; t < args.threshold_count; ++t) code += x >= args.thresholds[t] ? 1u : 0u;
    args.codes[i] = static_cast<uint8_t>(code);
  }
}

}  // namespace

void fill_search(Kernels& kernels) {
  kernels.search_scan = scan;
  kernels.search_select = select;
  kernels.search_product = product;
  kernels.search_codes = codes;
}

}  // namespace kvikk::scalar
