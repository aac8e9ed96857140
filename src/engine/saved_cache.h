#pragma once
// The prefix cache of an engine, or a part of it, in a file: a long prompt that was computed once
// is read again in the time of a copy. What the file holds is checked against the model, its
// weights, the way the cache is kept and the bytes themselves (kv/sequence_kv.h).

#include <span>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

// Writes what the engine still knows of `tokens`, whole blocks of 64 from the first on. Returns how
// many tokens those are; none is an error. Errors: kNotFound (nothing is known), kExhausted (the
// disk), kIo.
Result<size_t> save_cache(Engine& engine, std::span<const TokenId> tokens, const std::string& path);

// Lets the engine's prefix cache go on in options.prefix_disk (kv/prefix_store.h). Before anything
// runs. Errors: kIo, kExhausted: the folder cannot be used.
Status keep_prefixes_on_disk(Engine& engine);

// Reads a saved cache in place of everything that the engine knew, so that a prompt which begins
// with its tokens need not be computed. Nothing must be running. Returns its tokens. Errors: those
// of load_sequence(); kInvalidArgument (a token outside the vocabulary).
Result<std::vector<TokenId>> load_cache(Engine& engine, const std::string& path);

}  // namespace kvikk
