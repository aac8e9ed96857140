#pragma once
// The packed weights of a model that was quantized while it was loaded (--weights), kept so that
// the next start only reads. One file holds the whole weight memory.
//
// The file: magic, key, size of the memory, an XXH3 for each 4 MiB of it, an XXH3 of all this; then
// the memory itself, from a multiple of 4096 on. It appears whole, by a rename; what does not match
// its key and hashes is not used.
//
// The key is a SHA-256 of what the memory is made from: the caller's recipe, the names, types,
// shapes and samples of all tensors, size and time of the files, and what packing and quantizing
// make of a fixed pattern, so that a program that packs in another way never reads it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "weights/tensor_source.h"

namespace kvikk {

// Files that a cache folder keeps; the oldest goes when one more is written.
inline constexpr size_t kPanelCachesMax = 8;

// `recipe` says everything about the memory that the tensors do not: the method, and for each
// matrix in order its tensor, rows, format and offset.
std::string panel_cache_key(const TensorSource& source, std::string_view recipe);

// A SHA-256 of the tensors alone: names, types, shapes, samples. A copy of a model has the same.
std::string tensors_key(const TensorSource& source);

// MODELS_DIR/cache/KEY.panels
std::string panel_cache_path(const std::string& models_dir, const std::string& key);

// Fills `memory`. Errors: kNotFound (no such file), kDamaged (another key or size, a hash that does
// not match: build the memory and write the file again), kIo. After an error the memory may hold
// anything.
Status read_panel_cache(const std::string& path, const std::string& key, std::span<uint8_t> memory,
                        ThreadPool& pool);

// Makes the folder, writes the file, and deletes the oldest beyond kPanelCachesMax. Errors:
// kExhausted (the disk), kIo; the model runs without.
Status write_panel_cache(const std::string& path, const std::string& key,
                         std::span<const uint8_t> memory, ThreadPool& pool);

}  // namespace kvikk
