#include "models/kv_sidecar.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/byte_reader.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "models/kv_coding.h"
#include "weights/panel_cache.h"

namespace kvikk {

namespace {

constexpr char kMagic[] = "KVIKKEY1";
constexpr size_t kMagicBytes = 8;
// Of a file: a fitted basis of every head of a very large model.
constexpr uint64_t kSidecarBytesMax = uint64_t{4} << 30;
constexpr uint64_t kSpareBytes = uint64_t{1} << 28;  // left free on the disk
constexpr char kEnding[] = ".keys";

// The parts of an entry, in the order of the file.
template <class Entry, class F>
void visit_parts(Entry& entry, F&& f) {
  f(entry.rope_mean);
  f(entry.mean);
  f(entry.balance);
  f(entry.forward);
  f(entry.backward);
  f(entry.deviation);
}

void put(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}
void put_number(std::string& out, uint64_t value) { put(out, &value, sizeof value); }

bool read_floats(ByteReader& reader, std::vector<float>& out) {
  uint64_t count = 0;
  return reader.get(count) && reader.get_all(count, out);
}

bool read_entry(ByteReader& reader, KeyConditioning& entry) {
  bool good = true;
  visit_parts(entry, [&](std::vector<float>& part) { good = good && read_floats(reader, part); });
  for (CodedSegment& segment : entry.layout.segments) {
    good = good && reader.get(segment);
  }
  return good;
}

}  // namespace

std::string kv_sidecar_key(const TensorSource& source, const ModelConfig& config,
                           const KvChoice& choice, std::string_view weights, size_t context) {
  const std::string_view text = calibration_text();
  // A mean and a balance serve all codecs, a fitted basis its own.
  const bool fitted = choice.keys->coding == KvCoding::kFitted;
  std::string recipe = "keys 3 " + std::string(fitted ? choice.keys->name : "balance");
  recipe += choice.exact == KvFormat::kF32 ? " f32" : " bf16";
  recipe += " weights " + std::string(weights);
  for (const RopeConfig* rope : {&config.rope, &config.rope_sliding}) {
    recipe += uses_long_factors(*rope, context) ? " long" : " short";
  }
  return panel_cache_key(source,
                         recipe + " text " + std::to_string(XXH3_64bits(text.data(), text.size())));
}

std::string kv_sidecar_path(const std::string& models_dir, const std::string& key) {
  return models_dir + "/cache/" + key + kEnding;
}

Result<std::vector<KeyConditioning>> read_kv_sidecar(const std::string& path,
                                                     const std::string& key) {
  TRY_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::span<const uint8_t> all = file.bytes();
  const Status broken = damaged(path + ": the measurements of keys are damaged");
  if (all.size() < kMagicBytes + sizeof(uint64_t) || all.size() > kSidecarBytesMax) return broken;
  const std::span<const uint8_t> body = all.first(all.size() - sizeof(uint64_t));
  uint64_t sum = 0;
  std::memcpy(&sum, all.data() + body.size(), sizeof sum);
  if (XXH3_64bits(body.data(), body.size()) != sum) return broken;
  ByteReader reader(body);
  const auto is_next = [&reader](std::string_view wanted) {
    const auto found = reader.take(wanted.size());
    return found.has_value() && std::ranges::equal(*found, bytes_of(wanted));
  };
  if (!is_next({kMagic, kMagicBytes})) return broken;
  uint64_t size = 0;
  if (!reader.get(size) || size != key.size() || !is_next(key)) return broken;
  uint64_t count = 0;
  if (!reader.get(count) || count > body.size()) return broken;
  std::vector<KeyConditioning> out(count);
  for (KeyConditioning& entry : out) {
    if (!read_entry(reader, entry)) return broken;
  }
  if (!reader.done()) return broken;
  return out;
}

Status write_kv_sidecar(const std::string& path, const std::string& key,
                        const std::vector<KeyConditioning>& conditioning) {
  std::string out(kMagic, kMagicBytes);
  put_number(out, key.size());
  out += key;
  put_number(out, conditioning.size());
  for (const KeyConditioning& entry : conditioning) {
    visit_parts(entry, [&](const std::vector<float>& part) {
      put_number(out, part.size());
      put(out, part.data(), part.size() * sizeof(float));
    });
    for (const CodedSegment& segment : entry.layout.segments) put(out, &segment, sizeof segment);
  }
  put_number(out, XXH3_64bits(out.data(), out.size()));
  const std::string folder = std::filesystem::path(path).parent_path();
  TRY(make_folders(folder));
  if (free_bytes(folder) < out.size() + kSpareBytes) {
    return exhausted(folder + ": has no room for " + std::to_string(out.size()) +
                     " bytes of measured keys and " + std::to_string(kSpareBytes) + " to spare");
  }
  TRY(write_file_atomically(path, bytes_of(out)));
  keep_newest(folder, kEnding, kKvSidecarsMax);
  return ok_status();
}

}  // namespace kvikk
