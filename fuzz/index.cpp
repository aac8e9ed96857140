// Any bytes as the file of a vector index, checksums of superblock and manifest aside (nothing
// would get past them): a Status, or an index whose chunks lie inside the bytes and refuse what was
// changed in them.

#include "base/check.h"
#include "search/index_file.h"

namespace {

void read_row(const kvikk::IndexContent& content, const kvikk::Chunk& chunk, size_t row) {
  const kvikk::CodeLayout& layout = content.table.coder->layout();
  CHECK(chunk.get(layout, row).codes.size() == layout.dims());
  if (content.options.kept == kvikk::KeptVectors::kNone) return;
  std::vector<float> vector(content.options.dimensions);
  const kvikk::Status status =
      kvikk::get_kept(content.options.kept, chunk.kept(row), vector.size(), vector.data());
  CHECK(status.ok() || status.code() == kvikk::StatusCode::kDamaged);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvikk::IndexFileState state;
  const auto content = kvikk::parse_index(nullptr, {data, size}, "input.kvx", false, state);
  if (!content.ok()) return 0;
  for (const kvikk::ChunkView& view : content->table.chunks) {
    const kvikk::Status status = view.chunk->check();  // reads all of it
    CHECK(status.ok() || status.code() == kvikk::StatusCode::kDamaged);
    read_row(*content, *view.chunk, 0);
    read_row(*content, *view.chunk, view.rows - 1);
  }
  return 0;
}
