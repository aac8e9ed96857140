// kvikk eval batch: answers many requests from a file, side by side, through the same engine path
// as everything else. Lines are written in the input's order as soon as they are complete.

#include <chrono>
#include <optional>

#include "batch_requests.h"
#include "model_source.h"
#include "progress.h"
#include "text/json_text.h"
#include "text/numbers.h"
#include "verbs.h"

namespace kvikk {
namespace {

// Requests that wait in the engine beyond those that run.
constexpr size_t kQueuedMax = 64;

struct BatchOptions {
  std::string requests;
  std::string out;
  int32_t concurrency = 0;
  int32_t max_tokens = 0;
  bool json = false;

  template <class V>
  void visit(V&& v) {
    v(requests, "requests", 0, 4096, "file with one JSON request a line; - is standard input");
    v(out, "out", 0, 4096, "file for one JSON answer a line, in the input's order");
    v(concurrency, "concurrency", 0, 1024, "requests computed side by side; changes no output");
    v(max_tokens, "max_tokens", 0, 1 << 27, "for requests that do not say");
    v(json, "json", false, true, "print figures of the whole as JSON");
  }
};

class BatchRun {
 public:
  BatchRun(Shell& shell, Engine& engine, std::vector<BatchRequest>& batch, OutputFile& out)
      : shell_(shell), engine_(engine), batch_(batch), out_(out), answers_(batch.size()) {}

  // Stops at the first failure to write; an interrupt is kCancelled, with all whole lines written.
  Status run(size_t running_max) {
    Progress progress(shell_, "answering", false);
    size_t next = 0;
    while (written_ < batch_.size()) {
      while (next < batch_.size() && next - completed_ < running_max + kQueuedMax) {
        TRY(submit(next));
        ++next;
      }
      engine_.step();
      TRY(write_ready());
      progress.show(written_, batch_.size());
      TRY(shell_.go_on());
    }
    return ok_status();
  }

  size_t prompt_tokens() const { return prompt_tokens_; }
  size_t cached_tokens() const { return cached_tokens_; }
  size_t answer_tokens() const { return answer_tokens_; }
  size_t drafted_tokens() const { return drafted_tokens_; }
  size_t accepted_tokens() const { return accepted_tokens_; }

 private:
  Status submit(size_t index) {
    Request request = batch_[index].request;
    request.on_completion = [this, index](const Completion& completion) {
      answers_[index] = completion;
      ++completed_;
    };
    const auto id = engine_.submit(std::move(request));
    if (id.ok()) return ok_status();
    return Status(id.status().code(), batch_[index].where + ": " + id.status().message());
  }

  Status write_ready() {
    while (written_ < answers_.size() && answers_[written_].has_value()) {
      const Completion& answer = *answers_[written_];
      prompt_tokens_ += answer.prompt_tokens;
      cached_tokens_ += answer.cached_tokens;
      answer_tokens_ += answer.tokens.size();
      drafted_tokens_ += answer.drafted_tokens;
      accepted_tokens_ += answer.accepted_tokens;
      TRY(out_.write(json_line(batch_answer(batch_[written_], answer))));
      answers_[written_].reset();
      ++written_;
    }
    return ok_status();
  }

  Shell& shell_;
  Engine& engine_;
  std::vector<BatchRequest>& batch_;
  OutputFile& out_;
  std::vector<std::optional<Completion>> answers_;  // those that wait for an earlier one
  size_t completed_ = 0;
  size_t written_ = 0;
  size_t prompt_tokens_ = 0;
  size_t cached_tokens_ = 0;
  size_t answer_tokens_ = 0;
  size_t drafted_tokens_ = 0;
  size_t accepted_tokens_ = 0;
};

Status report(Shell& shell, const BatchRun& run, size_t requests, double seconds, bool json) {
  if (json) {
    return shell.print(json_line(
        {{"requests", requests},
         {"seconds", seconds},
         {"prompt_tokens", run.prompt_tokens()},
         {"cached_tokens", run.cached_tokens()},
         {"completion_tokens", run.answer_tokens()},
         {"drafted_tokens", run.drafted_tokens()},
         {"accepted_tokens", run.accepted_tokens()},
         {"completion_tokens_per_second", static_cast<double>(run.answer_tokens()) / seconds}}));
  }
  shell.note(count_text(requests) + " requests in " + seconds_text(seconds) + ": " +
             count_text(run.prompt_tokens()) + " prompt tokens (" +
             count_text(run.cached_tokens()) + " cached), " + count_text(run.answer_tokens()) +
             " answer tokens");
  return ok_status();
}

}  // namespace

Status verb_eval_batch(Shell& shell, Arguments arguments) {
  ModelOptions model;
  BatchOptions options;
  EngineOptions engine_options;
  SamplingOptions sampling;
  sampling.seed = 0;  // so that a run can be repeated
  Command command(
      {"eval batch",
       "",
       "Answers requests from a file. A line: {\"id\": .., \"tokens\": [..] or \"prompt\": \"..\" "
       "or "
       "\"messages\":\n[..], \"max_tokens\": .., any sampling option}; its answer: {\"id\": .., "
       "\"tokens\": [..],\n\"text\": \"..\", \"finish_reason\": \"..\"}.",
       {"kvikk eval batch -m smollm2-135m --requests in.jsonl --out answers.jsonl",
        "kvikk eval batch --requests in.jsonl --out out.jsonl --concurrency 8 --temperature 0"}});
  command.add(model, {"model"});
  command.add_short("model", 'm');
  command.add(options);
  command.add(sampling, {"temperature", "seed"});
  command.add(engine_options, {"threads", "context", "kv", "weights", "spec"});
  TRY_ASSIGN(const bool wanted, command.parse(shell, arguments));
  if (!wanted) return ok_status();
  if (options.requests.empty()) return invalid_argument("--requests FILE.jsonl is missing");
  if (options.out.empty()) return invalid_argument("--out FILE.jsonl is missing");
  if (options.concurrency > 0) engine_options.parallel = options.concurrency;

  TRY(validate(engine_options));
  TRY_ASSIGN(const std::string path, find_model(shell, model));
  TRY_ASSIGN(OutputFile out, OutputFile::open(options.out, {path, options.requests}));
  TRY_ASSIGN(LoadedEngine loaded, load_engine(shell, model, path, engine_options));
  Request defaults;
  defaults.max_tokens = static_cast<size_t>(options.max_tokens);
  defaults.sampling = sampling;
  TRY_ASSIGN(std::vector<BatchRequest> batch,
             read_batch(shell, options.requests, *loaded.engine, defaults));
  BatchRun run(shell, *loaded.engine, batch, out);
  const auto start = std::chrono::steady_clock::now();
  TRY(run.run(static_cast<size_t>(engine_options.parallel)));
  TRY(out.close());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return report(shell, run, batch.size(), seconds.count(), options.json);
}

}  // namespace kvikk
