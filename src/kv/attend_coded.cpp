// Attention over a coded cache (coder.h). The past of a tile has three parts: the first page and
// the newest ones are exact, all between them are codes. Queries are rotated to meet the codes;
// nothing is rotated back but the weighted sum of the values, once a row.

#include <algorithm>

#include "base/check.h"
#include "kv/attend.h"
#include "kv/coder.h"

namespace kvikk {

namespace {

// With --exact, and where a level has no kernel for integers, codes become floats.
bool in_integers(const Compute& compute, const KvShape& shape) {
  return shape.format == KvFormat::kBF16 && shape.coder->in_integers() &&
         compute.kernels().attend_coded != nullptr;
}

}  // namespace

void Attention::ask_codes(Compute& compute, const Tile& tile, const AttendLayer& layer,
                          const Asked& asked) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const KvCoder& coder = *shape.coder;
  const size_t model_layer = shape.groups[layer.group].layers[layer.layer_in_group];
  const bool integers = in_integers(compute, shape);
  for (size_t row = 0; row < asked.rows; ++row) {
    float* prepared = asked.prepared + row * coder.query_floats();
    coder.prepare_query(model_layer, tile.kv_head, asked.queries + row * shape.key_width(),
                        prepared);
    if (!integers) continue;
    asked.scales[row] =
        coder.query_bytes(model_layer, tile.kv_head, prepared,
                          asked.bytes + row * 2 * coder.width(), asked.sums + row * 2);
  }
}

Attention::CodedPages Attention::coded_pages(const Tile& tile, const AttendLayer& layer,
                                             const Asked& asked, size_t chunk) {
  SequenceKv& sequence = *tile.span->sequence;
  PagePool& pool = sequence.pool();
  const size_t group = pool.shape().groups[layer.group].coded_by;
  const size_t query_page = (tile.span->first_position + tile.first) / kPageTokens;
  CodedPages coded;
  coded.first = std::max({chunk * kChunkPages, asked.first_page(), size_t{1}});
  const size_t end = (chunk + 1) * kChunkPages;
  for (size_t page = coded.first; page < end && reads_codes(page, query_page); ++page) {
    const SlabId slab = sequence.slab(group, page);
    CHECK(slab != kNoSlab);
    coded.pages[coded.count++] = pool.page(group, slab, layer.layer_in_group, tile.kv_head);
  }
  return coded;
}

void Attention::attend_coded_chunk(Compute& compute, const Tile& tile, const AttendLayer& layer,
                                   const Asked& asked, size_t chunk, Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const CodedPages coded = coded_pages(tile, layer, asked, chunk);
  if (coded.count == 0) {
    std::fill(out.max, out.max + asked.rows, kNothingVisible);
    std::fill(out.sum, out.sum + asked.rows, 0.0f);
    std::fill(out.acc, out.acc + asked.rows * shape.value_width(), 0.0f);
  } else if (in_integers(compute, shape)) {
    attend_integers(compute, tile, layer, asked, coded, out, thread);
  } else {
    attend_floats(compute, tile, layer, asked, coded, out, thread);
  }
}

void Attention::attend_integers(Compute& compute, const Tile& tile, const AttendLayer& layer,
                                const Asked& asked, const CodedPages& coded, Partial out,
                                int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const KvCoder& coder = *shape.coder;
  const size_t model_layer = shape.groups[layer.group].layers[layer.layer_in_group];
  const PositionTerm position = coder.position_term(model_layer, tile.kv_head);
  const float* turns[kChunkPages];
  for (size_t i = 0; i < coded.count; ++i) {
    turns[i] = coder.page_turn(model_layer, coded.first + i);
  }
  CodedAttendArgs args{kernel_rows(compute, layer, asked, out, thread)};
  args.pages = coded.pages;
  args.page_count = coded.count;
  args.first_position = coded.first * kPageTokens;
  args.keys = &coder.keys_of(model_layer, tile.kv_head);
  args.values = &coder.values();
  args.value_offset = coder.value_offset();
  args.query_bytes = asked.bytes;
  args.two_halves = coder.two_halves();
  args.query_sums = asked.sums;
  args.query_scales = asked.scales;
  if (coder.has_terms()) {
    args.position = &position;
    args.terms = asked.prepared + coder.terms_offset();
    args.terms_stride = coder.query_floats();
    args.terms_pairs = coder.terms_pairs();
    args.turns = turns;
  }
  compute.kernels().attend_coded(args);
}

void Attention::attend_floats(Compute& compute, const Tile& tile, const AttendLayer& layer,
                              const Asked& asked, const CodedPages& coded, Partial out,
                              int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const KvCoder& coder = *shape.coder;
  const size_t model_layer = shape.groups[layer.group].layers[layer.layer_in_group];
  const size_t rows = asked.rows;
  const size_t width = shape.value_width();
  float* keys = coded_of(thread);
  float* values = keys + kPageTokens * coder.attend_dim();
  float* turned = values + kPageTokens * coder.width();
  CHECK(turned + rows * coder.attend_dim() <= keys + coded_floats_);
  std::fill(out.max, out.max + rows, kNothingVisible);
  std::fill(out.sum, out.sum + rows, 0.0f);
  std::fill(out.acc, out.acc + rows * width, 0.0f);
  coder.fill_constant_dims(model_layer, tile.kv_head, keys);
  const Partial page_out =
      partial_at(partials_, static_cast<size_t>(thread) * partials_each_ + 2, rows, width);
  // As a page of kF32 its values follow its keys.
  const uint8_t* const float_page = reinterpret_cast<const uint8_t*>(keys);
  AttendArgs args{kernel_rows(compute, layer, asked, page_out, thread)};
  args.pages = &float_page;
  args.page_count = 1;
  args.key_dim = coder.attend_dim();
  args.value_dim = width;
  args.queries = turned;
  for (size_t i = 0; i < coded.count; ++i) {
    const size_t page = coded.first + i;
    coder.decode(compute.kernels(), model_layer, tile.kv_head, coded.pages[i], keys, values);
    for (size_t row = 0; row < rows; ++row) {
      coder.query_for_page(model_layer, tile.kv_head, asked.prepared + row * coder.query_floats(),
                           page, turned + row * coder.attend_dim());
    }
    args.first_position = page * kPageTokens;
    compute.kernels().attend[static_cast<size_t>(KvFormat::kF32)](args);
    merge(page_out, rows, width, out);
  }
}

// The newest pages, then the first one.
void Attention::attend_exact(Compute& compute, const Tile& tile, const AttendLayer& layer,
                             const Asked& asked, Partial out, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const size_t query_page = (tile.span->first_position + tile.first) / kPageTokens;
  const size_t newest = query_page >= kExactPages ? query_page - kExactPages + 1 : 0;
  const size_t begin = std::max(newest, asked.first_page());
  attend_pages(compute, tile, layer, asked, begin, query_page + 1, out, thread);
  if (newest == 0 || asked.first_page() > 0) return;
  const Partial first = partial_at(partials_, static_cast<size_t>(thread) * partials_each_ + 3,
                                   asked.rows, shape.value_width());
  attend_pages(compute, tile, layer, asked, 0, 1, first, thread);
  merge(first, asked.rows, shape.value_width(), out);
}

void Attention::restore_values(const Partial& total, size_t rows, const KvShape& shape) {
  for (size_t row = 0; row < rows; ++row) {
    shape.coder->restore_values(total.acc + row * shape.value_width());
  }
}

}  // namespace kvikk
