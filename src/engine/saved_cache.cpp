#include "engine/saved_cache.h"

#include "base/check.h"
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
