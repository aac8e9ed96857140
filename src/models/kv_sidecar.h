#pragma once
// What was measured of a model's keys, kept beside the fetched models so that the next start does
// not measure again.
//
// File, little-endian: magic "KVIKKEY1" | key u64 length, bytes | count u64 | for each entry its
// vectors (rope_mean, mean, balance, forward, backward, deviation: u64 length, float32 values) and
// the segments of its layout | xxh3 u64 of all before it. It appears whole, by a rename; what does
// not match its key and checksum is measured again.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/coder.h"
#include "models/config.h"
#include "weights/tensor_source.h"

namespace kvikk {

// Names all that a measurement depends on: the model, how its weights were quantized at load, the
// rotary embedding that `context` positions choose, the codec of keys, the built-in text.
std::string kv_sidecar_key(const TensorSource& source, const ModelConfig& config,
                           const KvChoice& choice, std::string_view weights, size_t context);
// MODELS_DIR/cache/KEY.keys
std::string kv_sidecar_path(const std::string& models_dir, const std::string& key);

// Files that a folder keeps; the oldest goes when one more is written.
inline constexpr size_t kKvSidecarsMax = 32;

// Errors of reading: kNotFound, kDamaged, kIo; of writing: kExhausted (the disk), kIo.
Result<std::vector<KeyConditioning>> read_kv_sidecar(const std::string& path,
                                                     const std::string& key);
Status write_kv_sidecar(const std::string& path, const std::string& key,
                        const std::vector<KeyConditioning>& conditioning);

}  // namespace kvikk
