#pragma once
// A language model in this program: open one, ask, take the answer as it comes.
//
//   auto engine = kvikk::Engine::open("model.gguf");
//   if (!engine.ok()) return fail(engine.status().message());
//   auto prompt = (*engine)->encode_chat({{"user", "Why is the sky blue?"}});
//   if (!prompt.ok()) return fail(prompt.status().message());
//   kvikk::Request request;
//   request.tokens = *prompt;
//   request.on_chunk = [](const kvikk::Chunk& chunk) { std::cout << chunk.text << std::flush; };
//   auto answer = (*engine)->complete(std::move(request));
//
// Everything runs on the thread that calls, one at a time; worker threads live only inside step().
// Many requests run side by side: submit() them and call step() until it is false. What a request
// answers depends on nothing but the request and the model.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvikk/engine_options.h"
#include "kvikk/request.h"
#include "kvikk/status.h"

namespace kvikk {

class Compute;
class Model;
class PagePool;
class Scheduler;
class Template;
class Tokenizer;
struct ModelConfig;
struct ModelFile;
struct OpenedModel;

struct Message {
  std::string role;  // "system", "user", "assistant", or what else the model's template knows
  std::string content;
};

struct LoadProgress {
  uint64_t done_bytes;
  uint64_t total_bytes;
};

class Engine {
 public:
  using OnProgress = std::function<void(const LoadProgress&)>;

  // Opens a .gguf file (or the first of a split set) or a folder with config.json and safetensors,
  // loads its weights and sizes the cache. Errors: kNotFound, kIo, kDamaged, kUnsupported;
  // kInvalidArgument (an option that does not fit), kExhausted (what was needed, what there is).
  static Result<std::unique_ptr<Engine>> open(const std::string& path,
                                              const EngineOptions& options = {},
                                              const OnProgress& progress = {});
  ~Engine();

  const std::string& name() const;       // as the model calls itself
  size_t vocabulary() const;             // tokens
  size_t context() const;                // tokens that prompt and answer can have together
  const EngineOptions& options() const;  // with the automatic ones filled in
  const char* cpu_level() const;
  // Why options().kv was chosen; empty where it was given.
  const std::string& kv_reason() const;
  size_t weight_bytes() const;

  // Text to tokens, begun as the model wants it; `special`: text that spells a control token
  // becomes that token. Errors: kUnsupported or kDamaged when there is no usable tokenizer.
  Result<std::vector<TokenId>> encode(std::string_view text, bool special = false);
  // Messages through the model's chat template, up to where its answer begins. What they say never
  // becomes a control token. Errors: also those of the template.
  Result<std::vector<TokenId>> encode_chat(const std::vector<Message>& messages);
  Result<std::string> decode(const std::vector<TokenId>& tokens);

  // Whether a request can be answered at all. Errors: kInvalidArgument (empty prompt, a token
  // outside the vocabulary, an option out of range), kExhausted when it can never fit (with the
  // figures).
  Status check(const Request& request);
  // Queues a request; nothing is computed yet. Errors: those of check(), kExhausted when the queue
  // is full.
  Result<RequestId> submit(Request request);
  // Ends a request at the next step; its completion still comes, with what was generated.
  void cancel(RequestId id);
  // Computes one step of everything that runs. False when there is nothing to do.
  bool step();
  bool idle() const;

  // Submits and steps until this request is complete; `cancelled` is asked once a step.
  Result<Completion> complete(Request request, const std::function<bool()>& cancelled = {});

  // --- For this program itself: engine/engine.h has the types.

  static Result<std::unique_ptr<Engine>> load(ModelFile file, const EngineOptions& options,
                                              const OnProgress& progress = {});
  const ModelConfig& config() const;
  const OpenedModel& file() const;
  Model& model();
  Compute& compute();
  PagePool& pool();
  Scheduler& scheduler();
  // Made on first use. Errors: kUnsupported or kDamaged when the model has none or one that cannot
  // be used. Models without a tokenizer run on token ids.
  Result<const Tokenizer*> tokenizer();
  Result<const Template*> chat_template();

 private:
  struct Parts;
  explicit Engine(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace kvikk
