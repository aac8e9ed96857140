// Attention over a coded cache (coder.h). The past of a tile has three parts: the first page and
// the newest ones are exact, all between them are codes. Queries are rotated to meet the codes;
// nothing is rotated back but the weighted sum of the values, once a row.

#include <algorithm>

#include "base/check.h"
#include "kv/attend.h"
#include "kv/coder.h"

namespace kvikk {

namespace {

constexpr float kNothing = -1e30f;

}  // namespace

Attention::CodedPages Attention::coded_pages(const Tile& tile, const AttendLayer& layer,
                                             size_t chunk, int thread) {
  SequenceKv& sequence = *tile.span->sequence;
  PagePool& pool = sequence.pool();
  const KvShape& shape = pool.shape();
  const size_t group = shape.groups[layer.group].coded_by;
  const size_t query_page = (tile.span->first_position + tile.first) / kPageTokens;
  const size_t first_seen = visible_of(thread)[0] / kPageTokens;
  CodedPages coded;
  coded.first = std::max({chunk * kChunkPages, first_seen, size_t{1}});
  const size_t end = (chunk + 1) * kChunkPages;
  for (size_t page = coded.first; page < end && reads_codes(page, query_page); ++page) {
    const SlabId slab = sequence.slab(group, page);
    CHECK(slab != kNoSlab);
    coded.pages[coded.count++] = pool.page(group, slab, layer.layer_in_group, tile.kv_head);
  }
  return coded;
}

// With --exact, and where a level has no kernel for integers, codes become floats.
void Attention::attend_coded_chunk(Compute& compute, const Tile& tile, const AttendLayer& layer,
                                   size_t chunk, Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const size_t rows = tile.tokens * (layer.heads / shape.kv_heads);
  load_rows(tile, layer, shape, thread);
  const CodedPages coded = coded_pages(tile, layer, chunk, thread);
  if (coded.count == 0) {
    std::fill(out.max, out.max + rows, kNothing);
    std::fill(out.sum, out.sum + rows, 0.0f);
    std::fill(out.acc, out.acc + rows * shape.value_width(), 0.0f);
  } else if (shape.format == KvFormat::kBF16 && compute.kernels().attend_coded != nullptr) {
    attend_integers(compute, tile, layer, coded, out, thread);
  } else {
    attend_floats(compute, tile, layer, coded, out, thread);
  }
}

void Attention::attend_integers(Compute& compute, const Tile& tile, const AttendLayer& layer,
                                const CodedPages& coded, Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const KvCoder& coder = *shape.coder;
  const size_t model_layer = shape.groups[layer.group].layers[layer.layer_in_group];
  const size_t rows = tile.tokens * (layer.heads / shape.kv_heads);
  const size_t width = coder.width();
  float* prepared = coded_.as<float>() + static_cast<size_t>(thread) * coded_floats_;
  float* bias = prepared + rows * coder.query_floats();
  float* scales = bias + rows * kChunkPages * kPageTokens;
  int32_t* sums = reinterpret_cast<int32_t*>(scales + rows);
  int8_t* bytes = reinterpret_cast<int8_t*>(sums + 2 * rows);
  CHECK(bytes + rows * 2 * width <=
        reinterpret_cast<int8_t*>(coded_.as<float>() +
                                  (static_cast<size_t>(thread) + 1) * coded_floats_));
  for (size_t row = 0; row < rows; ++row) {
    float* query = prepared + row * coder.query_floats();
    coder.prepare_query(model_layer, tile.kv_head, queries_of(thread) + row * shape.key_width(),
                        query);
    scales[row] = coder.query_bytes(model_layer, tile.kv_head, query, bytes + row * 2 * width,
                                    sums + row * 2);
    for (size_t i = 0; coder.has_bias() && i < coded.count; ++i) {
      coder.score_bias(model_layer, tile.kv_head, query, coded.first + i,
                       bias + (i * rows + row) * kPageTokens);
    }
  }
  CodedAttendArgs args;
  args.pages = coded.pages;
  args.page_count = coded.count;
  args.first_position = coded.first * kPageTokens;
  args.keys = &coder.keys_of(model_layer, tile.kv_head);
  args.values = &coder.values();
  args.value_offset = coder.value_offset();
  args.softcap = layer.softcap;
  args.rows = rows;
  args.query_bytes = bytes;
  args.two_halves = coder.two_halves();
  args.query_sums = sums;
  args.query_scales = scales;
  args.bias = coder.has_bias() ? bias : nullptr;
  args.visible_begin = visible_of(thread);
  args.visible_end = args.visible_begin + rows_max_;
  args.max = out.max;
  args.sum = out.sum;
  args.acc = out.acc;
  args.scratch = compute.scratch(thread);
  compute.kernels().attend_coded(args);
}

void Attention::attend_floats(Compute& compute, const Tile& tile, const AttendLayer& layer,
                              const CodedPages& coded, Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const KvCoder& coder = *shape.coder;
  const size_t model_layer = shape.groups[layer.group].layers[layer.layer_in_group];
  const size_t rows = tile.tokens * (layer.heads / shape.kv_heads);
  const size_t width = shape.value_width();
  float* keys = coded_.as<float>() + static_cast<size_t>(thread) * coded_floats_;
  float* values = keys + kPageTokens * coder.attend_dim();
  float* prepared = values + kPageTokens * coder.width();
  float* turned = prepared + rows * coder.query_floats();
  CHECK(turned + rows * coder.attend_dim() <= keys + coded_floats_);
  std::fill(out.max, out.max + rows, kNothing);
  std::fill(out.sum, out.sum + rows, 0.0f);
  std::fill(out.acc, out.acc + rows * width, 0.0f);
  for (size_t row = 0; row < rows; ++row) {
    coder.prepare_query(model_layer, tile.kv_head, queries_of(thread) + row * shape.key_width(),
                        prepared + row * coder.query_floats());
  }
  coder.fill_constant_dims(model_layer, keys);
  const Partial page_out =
      partial_at(partials_, static_cast<size_t>(thread) * partials_each_ + 2, rows, width);
  // As a page of kF32 its values follow its keys.
  const uint8_t* const float_page = reinterpret_cast<const uint8_t*>(keys);
  for (size_t i = 0; i < coded.count; ++i) {
    const size_t page = coded.first + i;
    coder.decode(compute.kernels(), model_layer, tile.kv_head, coded.pages[i], keys, values);
    for (size_t row = 0; row < rows; ++row) {
      coder.query_for_page(model_layer, prepared + row * coder.query_floats(), page,
                           turned + row * coder.attend_dim());
    }
    AttendArgs args;
    args.pages = &float_page;
    args.page_count = 1;
    args.first_position = page * kPageTokens;
    args.key_dim = coder.attend_dim();
    args.value_dim = width;
    args.softcap = layer.softcap;
    args.rows = rows;
    args.queries = turned;
    args.visible_begin = visible_of(thread);
    args.visible_end = args.visible_begin + rows_max_;
    args.max = page_out.max;
    args.sum = page_out.sum;
    args.acc = page_out.acc;
    args.scratch = compute.scratch(thread);
    compute.kernels().attend[static_cast<size_t>(KvFormat::kF32)](args);
    merge(page_out, rows, width, out);
  }
}

// The newest pages, then the first one.
void Attention::attend_exact(Compute& compute, const Tile& tile, const AttendLayer& layer,
                             Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const size_t rows = tile.tokens * (layer.heads / shape.kv_heads);
  const size_t query_page = (tile.span->first_position + tile.first) / kPageTokens;
  load_rows(tile, layer, shape, thread);
  const size_t first_seen = visible_of(thread)[0] / kPageTokens;
  const size_t newest = query_page >= kExactPages ? query_page - kExactPages + 1 : 0;
  attend_pages(compute, tile, layer, std::max(newest, first_seen), query_page + 1, out, thread);
  if (newest == 0 || first_seen > 0) return;
  const Partial first = partial_at(partials_, static_cast<size_t>(thread) * partials_each_ + 3,
                                   rows, shape.value_width());
  attend_pages(compute, tile, layer, 0, 1, first, thread);
  merge(first, rows, shape.value_width(), out);
}

void Attention::restore_values(const Partial& total, size_t rows, const KvShape& shape) {
  for (size_t row = 0; row < rows; ++row) {
    shape.coder->restore_values(total.acc + row * shape.value_width());
  }
}

}  // namespace kvikk
