#include "engine/saved_cache.h"

#include <xxhash.h>

#include "base/check.h"
#include "base/mapped_file.h"
#include "weights/panel_cache.h"

namespace kvikk {

namespace {

// Two engines with the same key compute the same keys and values, but for rounding.
std::string model_key(const Engine& engine) {
  const EngineOptions& options = engine.options();
  return tensors_key(*engine.file().tensors) + " weights " +
         (options.exact             ? "exact"
          : options.weights.empty() ? "stored"
                                    : options.weights);
}

// What was computed by another version of the program may be rounded in another way, and an answer
// must not depend on what a disk holds.
Result<std::string> program_key() {
  TRY_ASSIGN(const MappedFile program, MappedFile::open("/proc/self/exe"));
  return std::to_string(XXH3_64bits(program.bytes().data(), program.bytes().size()));
}

}  // namespace

Result<size_t> save_cache(Engine& engine, std::span<const TokenId> tokens,
                          const std::string& path) {
  SequenceKv kv(engine.pool());
  const size_t count = engine.scheduler().prefix_tree().attach(tokens, tokens.size(), kv);
  if (count == 0) {
    return not_found(path + ": is not written: the cache holds no whole block of " +
                     std::to_string(kPageTokens) + " of the " + std::to_string(tokens.size()) +
                     " tokens");
  }
  TRY(save_sequence(kv, {tokens.begin(), tokens.begin() + static_cast<long>(count)},
                    model_key(engine), path));
  return count;
}

Status keep_prefixes_on_disk(Engine& engine) {
  const EngineOptions& options = engine.options();
  TRY_ASSIGN(const std::string program, program_key());
  const std::string identity = cache_identity(engine.pool().shape(), model_key(engine)) + "level " +
                               engine.cpu_level() + "\nprogram " + program + "\n";
  TRY_ASSIGN(
      std::unique_ptr<PrefixStore> store,
      PrefixStore::open(options.prefix_disk, static_cast<uint64_t>(options.prefix_disk_mib) << 20,
                        identity, engine.pool().shape()));
  engine.scheduler().prefix_tree().set_store(std::move(store));
  return ok_status();
}

Result<std::vector<TokenId>> load_cache(Engine& engine, const std::string& path) {
  CHECK(engine.idle());
  PrefixTree& tree = engine.scheduler().prefix_tree();
  tree.clear();  // its pages make room
  TRY_ASSIGN(LoadedSequence loaded, load_sequence(engine.pool(), model_key(engine), path));
  for (const TokenId token : loaded.tokens) {
    if (token >= 0 && static_cast<size_t>(token) < engine.config().vocabulary) continue;
    return invalid_argument(path + ": token " + std::to_string(token) +
                            " is outside the vocabulary of " +
                            std::to_string(engine.config().vocabulary));
  }
  tree.insert(loaded.tokens, 0, loaded.sequence);
  return std::move(loaded.tokens);
}

}  // namespace kvikk
