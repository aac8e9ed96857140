#pragma once
// Texts to vectors: runs a model over texts and makes one vector of each text's final hidden
// states. Encoders see a text whole, so that it must fit one step; decoders read it in chunks like
// a prompt. Short texts share a step. A text's vector depends on that text alone, bit for bit.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvikk/engine.h"
#include "models/model.h"
#include "models/pooling.h"
#include "text/tokenizer.h"

namespace kvikk {

struct EmbedderOptions {
  std::string pooling;  // "mean", "cls", "last"; empty: as the model's files say
  bool raw = false;     // vectors as they are, not of length 1
  bool truncate = false;
  int32_t context = 0;  // tokens of a text; 0: what the model was trained for
  int32_t threads = 0;
  bool exact = false;
  std::string weights;
  std::string cpu_level;
  std::string cache_dir;  // as EngineOptions::cache_dir

  template <class V>
  void visit(V&& v) {
    v(pooling, "pooling", 0, 16, "mean, cls or last token; default as the model's files say");
    v(raw, "raw", false, true, "vectors as the model gives them, not scaled to length 1");
    v(truncate, "truncate", false, true, "cut texts that are longer than the context");
    v(context, "context", 0, 1 << 27, "tokens of a text at most; 0 = what the model was made for");
    v(threads, "threads", 0, 1024, "threads that compute; 0 = one for each core");
    v(exact, "exact", false, true, "float32 weights and arithmetic: the reference, slow");
    v(weights, "weights", 0, 32, "quantize float weights at load: q8_0, q4_0, q4_k");
    v(cpu_level, "cpu_level", 0, 32,
      "instruction set: scalar, avx2, avx512, amx; default the best");
  }
};

// kInvalidArgument that names the option, its value and what it can be.
Status validate(const EmbedderOptions& options);

class Embedder {
 public:
  // Errors: those of Engine::load; kUnsupported also where there is no tokenizer, or the model's
  // files ask for more than pooling.
  static Result<std::unique_ptr<Embedder>> load(ModelFile file, const EmbedderOptions& options,
                                                const Engine::OnProgress& progress = {});

  size_t dimensions() const { return model_->config().hidden; }
  size_t context() const { return context_; }
  Pooling pooling() const { return pooling_; }
  const char* cpu_level() const { return compute_->kernels().level; }

  // Tokens of a piece of text, without those that begin and end it.
  size_t count_tokens(std::string_view text) const;
  // A text as the model wants it, begun and ended. Errors: kInvalidArgument for one that has no
  // tokens, or more than the context where texts are not truncated (with both figures).
  Result<std::vector<TokenId>> encode(std::string_view text) const;

  // out: [texts, dimensions()]. The texts come from encode(). `cancelled` is asked once a step.
  // Errors: kCancelled; kDamaged where the weights make no numbers of a text.
  Status embed(std::span<const std::vector<TokenId>> texts, float* out,
               const std::function<bool()>& cancelled = {});

 private:
  Embedder() = default;

  struct Running;  // texts of a step
  Status fill(Running& running);
  void collect(Running& running);
  Status finish(const std::vector<double>& sum, size_t count, float* out) const;

  EmbedderOptions options_;
  Pooling pooling_ = Pooling::kMean;
  size_t context_ = 0;
  size_t rows_max_ = 0;  // of a step
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace kvikk
