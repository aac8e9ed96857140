// Saving a sequence's cache to a file, and loading it again.
//
// File, little-endian: magic "KVIKKKV2" | header length u64 | header (text lines "key value") |
// tokens i32[n] | for each group, for each slab: present u8, then its bytes if present | xxh3 u64
// of all before it. The header names everything that must match; what does not is refused by name.

#include <xxhash.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "base/byte_reader.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "kv/coder.h"
#include "kv/sequence_kv.h"

namespace kvikk {

namespace {

constexpr char kMagic[] = "KVIKKKV2";
constexpr size_t kMagicBytes = 8;

struct HashState {
  HashState() : state(XXH3_createState()) { XXH3_64bits_reset(state); }
  ~HashState() { XXH3_freeState(state); }
  HashState(const HashState&) = delete;
  HashState& operator=(const HashState&) = delete;
  XXH3_state_t* state;
};

// Writes and hashes.
class Writer {
 public:
  explicit Writer(AtomicFile& file) : file_(file) {}
  Status bytes(const void* data, size_t size) {
    XXH3_64bits_update(hash_.state, data, size);
    return file_.write({static_cast<const uint8_t*>(data), size});
  }
  Status number(uint64_t value) { return bytes(&value, sizeof value); }
  Status finish() { return number(XXH3_64bits_digest(hash_.state)); }

 private:
  AtomicFile& file_;
  HashState hash_;
};

// The first line in which two headers differ, for the message.
std::string first_difference(const std::string& found, const std::string& wanted) {
  std::istringstream a(found);
  std::istringstream b(wanted);
  std::string x;
  std::string y;
  while (std::getline(b, y)) {
    if (!std::getline(a, x)) x = "nothing";
    if (x != y) return "it was saved with '" + x + "', this engine has '" + y + "'";
  }
  return "its header has more lines";
}

// The slabs of the next 64 tokens, each with one reference; kNoSlab where the file has none.
Status read_block(ByteReader& reader, PagePool& pool, const std::string& path,
                  std::vector<SlabId>& slabs) {
  for (size_t g = 0; g < pool.shape().groups.size(); ++g) {
    slabs.push_back(kNoSlab);
    uint8_t present = 0;
    if (!reader.get(present)) return damaged(path + ": a page is cut off");
    if (present == 0) continue;
    const auto data = reader.take(pool.shape().slab_bytes(g));
    if (!data.has_value()) return damaged(path + ": a page is cut off");
    slabs.back() = pool.allocate(g);
    if (slabs.back() == kNoSlab) {
      return exhausted(path + ": the key-value cache has no room for it");
    }
    std::memcpy(pool.slab(g, slabs.back()), data->data(), data->size());
  }
  return ok_status();
}

}  // namespace

std::string cache_identity(const KvShape& shape, const std::string& model_key) {
  std::ostringstream text;
  text << "model " << model_key << "\ncodec "
       << (shape.coder != nullptr ? shape.coder->identity() : "none") << "\nformat "
       << (shape.format == KvFormat::kF32 ? "f32" : "bf16") << "\nkv_heads " << shape.kv_heads
       << "\nhead_dim " << shape.head_dim << "\nvalue_dim " << shape.value_size()
       << (shape.value_in_key ? " in the key" : "") << "\ngroups";
  for (const KvGroup& group : shape.groups) {
    text << ' ' << group.layers.size() << ':' << group.window << (group.coded ? "c" : "");
  }
  text << "\n";
  return text.str();
}

Status save_sequence(const SequenceKv& sequence, const std::vector<int32_t>& tokens,
                     const std::string& model_key, const std::string& path) {
  CHECK(tokens.size() == sequence.length());
  PagePool& pool = sequence.pool();
  TRY_ASSIGN(AtomicFile file, AtomicFile::create(path));
  Writer writer(file);
  const std::string header = cache_identity(pool.shape(), model_key);
  TRY(writer.bytes(kMagic, kMagicBytes));
  TRY(writer.number(header.size()));
  TRY(writer.bytes(header.data(), header.size()));
  TRY(writer.number(tokens.size()));
  TRY(writer.bytes(tokens.data(), tokens.size() * sizeof(int32_t)));
  for (size_t i = 0; i * kPageTokens < tokens.size(); ++i) {
    for (size_t g = 0; g < pool.shape().groups.size(); ++g) {
      const SlabId slab = sequence.slab(g, i);
      const uint8_t present = slab != kNoSlab ? 1 : 0;
      TRY(writer.bytes(&present, 1));
      if (present != 0) TRY(writer.bytes(pool.slab(g, slab), pool.shape().slab_bytes(g)));
    }
  }
  TRY(writer.finish());
  return file.commit();
}

Result<LoadedSequence> load_sequence(PagePool& pool, const std::string& model_key,
                                     const std::string& path) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::span<const uint8_t> all = file.bytes();
  const auto broken = [&](const char* what) {
    return damaged(path + ": " + what + "; the saved cache is damaged");
  };
  if (all.size() < kMagicBytes + 16 || std::memcmp(all.data(), kMagic, kMagicBytes) != 0) {
    return damaged(path + ": is not a saved key-value cache");
  }
  const std::span<const uint8_t> body = all.first(all.size() - sizeof(uint64_t));
  uint64_t sum = 0;
  std::memcpy(&sum, all.data() + body.size(), sizeof sum);
  if (XXH3_64bits(body.data(), body.size()) != sum) return broken("the checksum does not match");

  ByteReader reader(body.subspan(kMagicBytes));
  uint64_t header_size = 0;
  if (!reader.get(header_size)) return broken("the header is cut off");
  const auto header = reader.take(header_size);
  if (!header.has_value()) return broken("the header is cut off");
  const std::string found(header->begin(), header->end());
  const std::string wanted = cache_identity(pool.shape(), model_key);
  if (found != wanted) {
    return invalid_argument(path + ": does not fit this model: " + first_difference(found, wanted));
  }
  uint64_t count = 0;
  LoadedSequence loaded{SequenceKv(pool), {}};
  if (!reader.get(count) || !reader.get_all(count, loaded.tokens)) {
    return broken("the tokens are cut off");
  }

  for (size_t i = 0; i * kPageTokens < count; ++i) {
    std::vector<SlabId> slabs;
    const Status status = read_block(reader, pool, path, slabs);
    if (status.ok()) loaded.sequence.append_shared(slabs);
    for (size_t g = 0; g < slabs.size(); ++g) {
      if (slabs[g] != kNoSlab) pool.release(g, slabs[g]);  // the sequence has its own reference
    }
    TRY(status);
  }
  if (!reader.done()) return broken("bytes are left over");
  if (!loaded.sequence.can_truncate(count)) return broken("a page is missing");
  loaded.sequence.truncate(count);
  return loaded;
}

}  // namespace kvikk
