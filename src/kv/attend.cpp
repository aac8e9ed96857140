#include "kv/attend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace kvikk {

Result<Attention> Attention::create(int threads, size_t heads, size_t kv_heads, size_t head_dim,
                                    size_t context, size_t coded_dim) {
  CHECK(heads % kv_heads == 0);
  Attention a;
  const size_t group_heads = heads / kv_heads;
  a.rows_max_ = std::max(group_heads, kTileRows);
  a.width_ = (head_dim + 15) / 16 * 16;
  a.partial_floats_ = (a.rows_max_ * (a.width_ + 2) + 15) / 16 * 16;
  const size_t chunks = context / (kChunkPages * kPageTokens) + 2;  // one for the exact pages
  const size_t n = static_cast<size_t>(threads);
  a.asked_max_ = std::max(n, kv_heads) * a.rows_max_;  // a tile a thread, or one for each KV head
  a.asked_.resize(kv_heads);
  a.partials_each_ = coded_dim > 0 ? 4 : 2;
  if (coded_dim > 0) {
    a.prepared_width_ = coded_dim;
    a.coded_floats_ = kPageTokens * (coded_dim + a.width_) + a.rows_max_ * coded_dim;
    a.coded_floats_ = (a.coded_floats_ + 15) / 16 * 16;
    TRY_ASSIGN(a.coded_, Buffer::allocate(n * a.coded_floats_ * sizeof(float)));
    TRY_ASSIGN(a.prepared_, Buffer::allocate(a.asked_max_ * (coded_dim + 1) * sizeof(float)));
    TRY_ASSIGN(a.bytes_, Buffer::allocate(a.asked_max_ * (2 * sizeof(int32_t) + 2 * a.width_)));
  }
  TRY_ASSIGN(a.queries_, Buffer::allocate(a.asked_max_ * a.width_ * sizeof(float)));
  TRY_ASSIGN(a.visible_, Buffer::allocate(2 * a.asked_max_ * sizeof(uint32_t)));
  TRY_ASSIGN(a.partials_,
             Buffer::allocate(n * a.partials_each_ * a.partial_floats_ * sizeof(float)));
  TRY_ASSIGN(a.split_, Buffer::allocate(kv_heads * chunks * a.partial_floats_ * sizeof(float)));
  return a;
}

Attention::Partial Attention::partial_at(Buffer& buffer, size_t index, size_t rows,
                                         size_t width) const {
  float* base = buffer.as<float>() + index * partial_floats_;
  return {base + rows * width, base + rows * width + rows, base};
}

void Attention::plan(std::span<const Span> spans, size_t kv_heads, size_t group_heads) {
  tiles_.clear();
  const size_t most = std::max<size_t>(1, rows_max_ / group_heads);
  size_t tokens_max = most;
  while (tokens_max > most / 2 && tokens_max * group_heads % kKernelRows != 0) --tokens_max;
  if (tokens_max <= most / 2) tokens_max = most;
  for (const Span& span : spans) {
    for (size_t first = 0; first < span.rows;) {
      const size_t position = span.first_position + first;
      const size_t to_page_end = kPageTokens - position % kPageTokens;
      const size_t tokens = std::min({tokens_max, to_page_end, span.rows - first});
      for (size_t head = 0; head < kv_heads; ++head) tiles_.push_back({&span, head, first, tokens});
      first += tokens;
    }
  }
}

void Attention::count_work(Compute& compute, std::span<const Span> spans,
                           const AttendLayer& layer) {
  Work& work = compute.work();
  for (const Span& span : spans) {
    const KvShape& shape = span.sequence->pool().shape();
    const size_t window = shape.seen(layer.group);
    const size_t end = span.first_position + span.rows;
    const size_t pages =
        (end - 1) / kPageTokens + 1 - first_seen(span.first_position, window) / kPageTokens;
    const size_t coded = shape.groups[layer.group].coded_by;
    work.bytes +=
        pages * shape.kv_heads * shape.page_bytes(coded == kNoGroup ? layer.group : coded);
    uint64_t seen = 0;  // tokens, summed over rows
    for (size_t p = span.first_position; p < end; ++p) {
      seen += (layer.whole_span ? end : p + 1) - first_seen(p, window);
    }
    work.float_operations += seen * layer.heads * 2 * (shape.head_dim + shape.value_size());
  }
}

void Attention::run(Compute& compute, std::span<const Span> spans, const AttendLayer& layer) {
  CHECK(!spans.empty());
  count_work(compute, spans, layer);
  const KvShape& shape = spans[0].sequence->pool().shape();
  plan(spans, shape.kv_heads, layer.heads / shape.kv_heads);
  // Few tiles over a long history leave threads idle: then a tile's chunks are the unit of work.
  const bool few = tiles_.size() < static_cast<size_t>(compute.pool().size()) * 4;
  const size_t last = spans[0].first_position + spans[0].rows;
  if (few && spans.size() == 1 && tiles_.size() == shape.kv_heads &&
      last > kChunkPages * kPageTokens) {
    run_split(compute, layer);
    return;
  }
  compute.pool().parallel_for(
      tiles_.size(), [&](size_t i, int thread) { run_tile(compute, tiles_[i], layer, thread); });
}

Attention::Asked Attention::ask(Compute& compute, const Tile& tile, const AttendLayer& layer,
                                size_t first_row) {
  const SequenceKv& sequence = *tile.span->sequence;
  const KvShape& shape = sequence.pool().shape();
  const size_t group_heads = layer.heads / shape.kv_heads;
  const size_t head_dim = shape.head_dim;
  const size_t key_width = shape.key_width();
  const size_t window = shape.seen(layer.group);
  Asked asked = {};
  asked.rows = tile.tokens * group_heads;
  CHECK(asked.rows <= rows_max_ && first_row + asked.rows <= asked_max_);
  CHECK(key_width <= width_ && shape.value_width() <= width_);
  asked.queries = queries_.as<float>() + first_row * width_;
  asked.visible_begin = visible_.as<uint32_t>() + first_row;
  asked.visible_end = asked.visible_begin + asked_max_;
  for (size_t t = 0; t < tile.tokens; ++t) {
    const size_t position = tile.span->first_position + tile.first + t;
    const float* source = layer.queries +
                          (tile.span->first_row + tile.first + t) * layer.queries_stride +
                          tile.kv_head * group_heads * head_dim;
    for (size_t h = 0; h < group_heads; ++h) {
      const size_t row = t * group_heads + h;
      float* query = asked.queries + row * key_width;
      std::memcpy(query, source + h * head_dim, head_dim * sizeof(float));
      std::fill(query + head_dim, query + key_width, 0.0f);
      asked.visible_begin[row] = static_cast<uint32_t>(std::max(
          first_seen(position, window), sequence.first_kept(layer.group, layer.layer_in_group)));
      asked.visible_end[row] =
          static_cast<uint32_t>(layer.whole_span ? seen_end(tile, layer) : position + 1);
    }
  }
  if (shape.groups[layer.group].coded_by == kNoGroup) return asked;
  CHECK(!layer.whole_span);
  asked.prepared = prepared_.as<float>() + first_row * prepared_width_;
  asked.scales = prepared_.as<float>() + asked_max_ * prepared_width_ + first_row;
  asked.sums = bytes_.as<int32_t>() + first_row * 2;
  asked.bytes = bytes_.as<int8_t>() + asked_max_ * 2 * sizeof(int32_t) + first_row * 2 * width_;
  ask_codes(compute, tile, layer, asked);
  return asked;
}

AttendRows Attention::kernel_rows(Compute& compute, const AttendLayer& layer, const Asked& asked,
                                  Partial out, int thread) {
  AttendRows args;
  args.softcap = layer.softcap;
  args.rows = asked.rows;
  args.visible_begin = asked.visible_begin;
  args.visible_end = asked.visible_end;
  args.max = out.max;
  args.sum = out.sum;
  args.acc = out.acc;
  args.scratch = compute.scratch(thread);
  return args;
}

void Attention::attend_pages(Compute& compute, const Tile& tile, const AttendLayer& layer,
                             const Asked& asked, size_t first_page, size_t end_page, Partial out,
                             int thread) {
  SequenceKv& sequence = *tile.span->sequence;
  PagePool& pool = sequence.pool();
  const KvShape& shape = pool.shape();
  const uint8_t* pages[kChunkPages];
  CHECK(end_page <= first_page + kChunkPages);
  for (size_t page = first_page; page < end_page; ++page) {
    const SlabId slab = sequence.slab(layer.group, page);
    CHECK(slab != kNoSlab);
    pages[page - first_page] = pool.page(layer.group, slab, layer.layer_in_group, tile.kv_head);
  }
  AttendArgs args{kernel_rows(compute, layer, asked, out, thread)};
  args.pages = pages;
  args.page_count = end_page > first_page ? end_page - first_page : 0;
  args.first_position = first_page * kPageTokens;
  args.key_dim = shape.key_width();
  args.value_dim = shape.value_width();
  args.value_in_key = shape.value_in_key;
  args.queries = asked.queries;
  compute.kernels().attend[static_cast<size_t>(shape.format)](args);
}

void Attention::attend_chunk(Compute& compute, const Tile& tile, const AttendLayer& layer,
                             const Asked& asked, size_t chunk, Partial out, int thread) {
  const size_t last_page = (seen_end(tile, layer) - 1) / kPageTokens;
  // Pages before the first one that any row sees add nothing to a state that is still empty.
  const size_t first_page = std::max(chunk * kChunkPages, asked.first_page());
  const size_t end_page = std::min((chunk + 1) * kChunkPages, last_page + 1);
  attend_pages(compute, tile, layer, asked, first_page, end_page, out, thread);
}

void Attention::merge(const Partial& from, size_t rows, size_t width, Partial into) {
  for (size_t row = 0; row < rows; ++row) {
    const float max = std::max(into.max[row], from.max[row]);
    const float keep = std::exp(into.max[row] - max);
    const float take = std::exp(from.max[row] - max);
    into.max[row] = max;
    into.sum[row] = into.sum[row] * keep + from.sum[row] * take;
    float* acc = into.acc + row * width;
    const float* other = from.acc + row * width;
    for (size_t d = 0; d < width; ++d) acc[d] = acc[d] * keep + other[d] * take;
  }
}

void Attention::finish(const Partial& total, const Tile& tile, const AttendLayer& layer,
                       const KvShape& shape) {
  const size_t group_heads = layer.heads / shape.kv_heads;
  const size_t size = shape.value_size();
  for (size_t row = 0; row < tile.tokens * group_heads; ++row) {
    const size_t head = tile.kv_head * group_heads + row % group_heads;
    float factor = 1.0f / total.sum[row];
    if (layer.sinks != nullptr) {
      const float sink = layer.sinks[head];
      const float max = std::max(total.max[row], sink);
      const float share = std::exp(total.max[row] - max);
      factor = share / (total.sum[row] * share + std::exp(sink - max));
    }
    const float* acc = total.acc + row * shape.value_width();
    float* out = layer.out +
                 (tile.span->first_row + tile.first + row / group_heads) * layer.out_stride +
                 head * size;
    for (size_t d = 0; d < size; ++d) out[d] = acc[d] * factor;
  }
}

void Attention::run_tile(Compute& compute, const Tile& tile, const AttendLayer& layer, int thread) {
  const KvShape& shape = tile.span->sequence->pool().shape();
  const Asked asked = ask(compute, tile, layer, static_cast<size_t>(thread) * rows_max_);
  const size_t rows = asked.rows;
  const size_t chunks = (seen_end(tile, layer) - 1) / (kChunkPages * kPageTokens) + 1;
  const size_t index = static_cast<size_t>(thread) * partials_each_;
  const Partial total = partial_at(partials_, index, rows, shape.value_width());
  const Partial part = partial_at(partials_, index + 1, rows, shape.value_width());
  if (shape.groups[layer.group].coded_by != kNoGroup) {
    attend_coded_chunk(compute, tile, layer, asked, 0, total, thread);
    for (size_t chunk = 1; chunk < chunks; ++chunk) {
      attend_coded_chunk(compute, tile, layer, asked, chunk, part, thread);
      merge(part, rows, shape.value_width(), total);
    }
    restore_values(total, rows, shape);
    attend_exact(compute, tile, layer, asked, part, thread);
    merge(part, rows, shape.value_width(), total);
  } else {
    attend_chunk(compute, tile, layer, asked, 0, total, thread);
    for (size_t chunk = 1; chunk < chunks; ++chunk) {
      attend_chunk(compute, tile, layer, asked, chunk, part, thread);
      merge(part, rows, shape.value_width(), total);
    }
  }
  finish(total, tile, layer, shape);
}

// One tile for each KV head, all of the same tokens.
void Attention::run_split(Compute& compute, const AttendLayer& layer) {
  const Tile& first = tiles_[0];
  const KvShape& shape = first.span->sequence->pool().shape();
  const size_t rows = first.tokens * (layer.heads / shape.kv_heads);
  const size_t chunks = (seen_end(first, layer) - 1) / (kChunkPages * kPageTokens) + 1;
  const bool coded = shape.groups[layer.group].coded_by != kNoGroup;
  const size_t parts = chunks + (coded ? 1 : 0);  // the last one: the exact pages
  CHECK(shape.kv_heads * parts * partial_floats_ * sizeof(float) <= split_.size());
  const size_t width = shape.value_width();
  CHECK(shape.kv_heads <= asked_.size());
  compute.pool().parallel_for(shape.kv_heads, [&](size_t head, int) {
    asked_[head] = ask(compute, tiles_[head], layer, head * rows);
  });
  compute.pool().parallel_for(shape.kv_heads * parts, [&](size_t i, int thread) {
    const Tile& piece = tiles_[i / parts];
    const Asked& asked = asked_[i / parts];
    const Partial out = partial_at(split_, i, rows, width);
    if (!coded) {
      attend_chunk(compute, piece, layer, asked, i % parts, out, thread);
    } else if (i % parts < chunks) {
      attend_coded_chunk(compute, piece, layer, asked, i % parts, out, thread);
    } else {
      attend_exact(compute, piece, layer, asked, out, thread);
    }
  });
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    const Partial total = partial_at(split_, head * parts, rows, width);
    for (size_t chunk = 1; chunk < parts; ++chunk) {
      if (coded && chunk == chunks) restore_values(total, rows, shape);
      merge(partial_at(split_, head * parts + chunk, rows, width), rows, width, total);
    }
    finish(total, tiles_[head], layer, shape);
  }
}

}  // namespace kvikk
