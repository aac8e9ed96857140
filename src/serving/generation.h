#pragma once
// One request while it is computed: what the engine gives goes through the writer of its API to the
// client; a client that goes away takes its work with it.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serving/answer_writer.h"
#include "serving/engine_thread.h"
#include "serving/http.h"

namespace kvikk {

// What is known of a request when it is over.
struct GenerationReport {
  int status = 200;  // as HTTP has it; 499: the client went away
  std::string error;
  std::vector<Answer> choices;
  double first_token_seconds = -1;      // since it came; -1: there was none
  double seconds = 0;                   // since it came
  std::vector<double> between_seconds;  // from each token to the next, of one choice
};

class Generation : public JobListener, public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;
  using OnEnd = std::function<void(const GenerationReport&)>;

  Generation(ApiStyle style, std::vector<HttpHeader> headers, std::shared_ptr<HttpReply> reply,
             Clock::time_point came, OnEnd on_end);

  // On the network's thread: hands the request to the engine, which stays until it is over, or
  // refuses it with 429.
  void start(ApiRequest request, std::shared_ptr<EngineThread> engine);
  // Refuses it.
  void fail(const ApiError& error);

  void on_token(size_t index, const TokenEvent& event) override;
  void on_done(size_t index, Answer answer) override;

 private:
  void begin();
  void finish();
  void over(int status, const std::string& error);

  const ApiStyle style_;
  const std::vector<HttpHeader> headers_;
  const std::shared_ptr<HttpReply> reply_;
  const Clock::time_point came_;
  OnEnd on_end_;
  std::shared_ptr<EngineThread> engine_;  // null before start()
  std::unique_ptr<AnswerWriter> writer_;  // uses the engine's tokenizer
  bool stream_ = false;
  bool begun_ = false;
  bool gone_ = false;
  size_t left_ = 0;                            // choices that are not done
  std::vector<Clock::time_point> last_token_;  // [choices]
  GenerationReport report_;
};

}  // namespace kvikk
