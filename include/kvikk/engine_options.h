#pragma once
// How a model is loaded and run. Every option is declared once, in visit(); flag, JSON key, --help
// and docs are made from it.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvikk {

class Status;  // kvikk/status.h

// The exact caches of kv, and the values of weights and cpu_level.
inline constexpr std::array<std::string_view, 2> kKvNames = {"bf16", "f32"};
inline constexpr std::array<std::string_view, 3> kWeightsNames = {"q8_0", "q4_0", "q4_k"};
inline constexpr std::array<std::string_view, 4> kCpuLevelNames = {"scalar", "avx2", "avx512",
                                                                   "amx"};

struct EngineOptions {
  int32_t threads = 0;      // 0: one for each core this process may use
  int32_t context = 0;      // tokens; 0: what the model was trained for, or what memory allows
  int32_t chunk = 512;      // prompt tokens that one step computes at most
  int32_t parallel = 1;     // sequences at a time
  int32_t max_step_ms = 0;  // of a step while answers are written; 0: automatic
  // Of the cache; 0: parallel * context tokens, at most half of what is free.
  int32_t kv_memory_mib = 0;
  bool exact = false;
  // "bf16", "f32", a codec ("q8", "turbo4" ...) or "KEYS/VALUES"; empty: bf16, with exact f32.
  // "auto": the smallest within kv_budget_kl.
  std::string kv;
  float kv_budget_kl = 0.002f;  // mean KL divergence from the exact cache that "auto" allows
  std::string weights;  // "q8_0", "q4_0", "q4_k": float weights are quantized; empty: as stored
  // Who guesses what comes next, so that several tokens are computed in one step: "none", "auto",
  // "ngram", "suffix" or "model:PATH" of a smaller model; empty: none. Changes no output.
  std::string spec = "auto";
  int32_t draft = 0;  // tokens guessed at a time; 0: as many as measurement says are worth it
  // Tokens of answers that guesses for the same client's later requests may come from; 0: none.
  int32_t spec_memory = 0;
  // A folder for prefixes that the cache had no room for and, at the end, for all it holds; empty:
  // none. They come back when a prompt begins alike, also in a later process.
  std::string prefix_disk;
  int32_t prefix_disk_mib = 4096;  // in that folder, of this model
  std::string cpu_level;           // "scalar", "avx2", "avx512", "amx"; empty: the best here
  // Where weights that were quantized at load are kept for the next time; empty: nowhere. Not an
  // option of its own: the models' folder.
  std::string cache_dir;

  template <class V>
  void visit(V&& v) {
    visit_fields(*this, v);
  }
  template <class V>
  void visit(V&& v) const {
    visit_fields(*this, v);
  }

 private:
  template <class Self, class V>
  static void visit_fields(Self& o, V& v) {
    v(o.threads, "threads", 0, 1024, "threads that compute; 0 = one for each core");
    v(o.context, "context", 0, 1 << 27, "tokens a conversation may hold; 0 = automatic");
    v(o.chunk, "chunk", 1, 4096, "prompt tokens in one step; changes no output");
    v(o.parallel, "parallel", 1, 1024, "sequences computed side by side");
    v(o.max_step_ms, "max_step_ms", 0, 60000,
      "ms a step may take for prompts while answers are written; 0 = automatic");
    v(o.kv_memory_mib, "kv_memory_mib", 0, 1 << 24, "MiB for the key-value cache; 0 = automatic");
    v(o.exact, "exact", false, true, "float32 weights, arithmetic and cache: the reference, slow");
    v(o.kv, "kv", 0, 512,
      "cache: bf16, f32, q8, fit4, fit3, turbo4, turbo3, turbo2, KEYS/VALUES, auto");
    v(o.kv_budget_kl, "kv_budget_kl", 0.0, 1e6,
      "kv auto: mean KL divergence from the exact cache that is allowed");
    v(o.weights, "weights", 0, 32,
      "quantize float weights at load: q8_0, q4_0, q4_k; kept for the next time");
    v(o.spec, "spec", 0, 4096, "guess ahead: auto, none, ngram, suffix, model:MODEL; same output");
    v(o.draft, "draft", 0, 32, "tokens to guess at a time; 0 = as many as pays");
    v(o.spec_memory, "spec_memory", 0, 1 << 24,
      "tokens of past answers to guess from; 0 = none are kept");
    v(o.prefix_disk, "prefix_disk", 0, 4096,
      "folder that keeps computed prompts beyond memory and restarts; default none");
    v(o.prefix_disk_mib, "prefix_disk_mib", 1, 1 << 24, "MiB that prefix_disk may take");
    v(o.cpu_level, "cpu_level", 0, 32,
      "instruction set: scalar, avx2, avx512, amx; default the best");
  }
};

// kInvalidArgument that names the option, its value and what it can be. Engine::open calls it;
// whoever wants to know before a model is fetched calls it too.
Status validate(const EngineOptions& options);

}  // namespace kvikk
