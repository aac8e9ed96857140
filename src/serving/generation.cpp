#include "serving/generation.h"

#include <utility>

#include "text/json_text.h"

namespace kvikk {
namespace {

constexpr int kStatusGone = 499;
// Of one request, for the histogram of times between tokens.
constexpr size_t kIntervalsMax = 4096;

double seconds(Generation::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

bool is_answered(const Answer& completion) {
  return completion.reason == FinishReason::kStop || completion.reason == FinishReason::kLength;
}

ApiError error_of(const Answer& completion) {
  if (completion.reason == FinishReason::kCancelled) {
    return {503, "the server is stopping", "", "server_stopping"};
  }
  if (completion.reason == FinishReason::kDeadline) {
    return {504, "the request took longer than the server allows", "", "deadline_exceeded"};
  }
  return {500, completion.error, "", "internal_error"};
}

}  // namespace

Generation::Generation(ApiStyle style, std::vector<HttpHeader> headers,
                       std::shared_ptr<HttpReply> reply, Clock::time_point came, OnEnd on_end)
    : style_(style),
      headers_(std::move(headers)),
      reply_(std::move(reply)),
      came_(came),
      on_end_(std::move(on_end)) {}

void Generation::start(ApiRequest request, std::shared_ptr<EngineThread> engine) {
  engine_ = std::move(engine);
  writer_ = std::move(request.writer);
  stream_ = request.stream;
  left_ = request.choices.size();
  report_.choices.resize(left_);
  last_token_.resize(left_);
  // Tokens are wanted even where only the whole answer is sent: when they come is measured.
  const auto job =
      engine_->submit(std::move(request.choices), shared_from_this(), true, request.guard);
  if (!job.ok()) {
    const bool stopping = job.status().code() == StatusCode::kCancelled;
    return fail({stopping ? 503 : 429, job.status().message(), "",
                 stopping ? "server_stopping" : "queue_full"});
  }
  reply_->on_gone([self = weak_from_this(), id = *job] {
    const auto generation = self.lock();
    if (generation == nullptr) return;
    generation->gone_ = true;
    generation->engine_->cancel(id);
  });
}

void Generation::fail(const ApiError& error) {
  HttpAnswer answer = error_answer(style_, error);
  answer.headers.insert(answer.headers.end(), headers_.begin(), headers_.end());
  reply_->send(std::move(answer));
  over(error.status, error.message);
}

void Generation::begin() {
  if (begun_) return;
  begun_ = true;
  HttpAnswer head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = headers_;
  head.headers.push_back({"Cache-Control", "no-cache"});
  head.headers.push_back({"X-Accel-Buffering", "no"});
  reply_->begin_stream(head);
  reply_->stream(writer_->begin());
}

void Generation::on_token(size_t index, const TokenEvent& event) {
  if (gone_) return;
  const auto now = Clock::now();
  Clock::time_point& last = last_token_[index];
  if (report_.first_token_seconds < 0) report_.first_token_seconds = seconds(now - came_);
  if (last != Clock::time_point{} && report_.between_seconds.size() < kIntervalsMax) {
    report_.between_seconds.push_back(seconds(now - last));
  }
  last = now;
  if (!stream_) return;
  begin();
  reply_->stream(writer_->token(index, event));
}

void Generation::on_done(size_t index, Answer completion) {
  if (!gone_ && stream_ && is_answered(completion)) {
    begin();
    reply_->stream(writer_->choice_end(index, completion));
  }
  report_.choices[index] = std::move(completion);
  if (--left_ == 0) finish();
}

void Generation::finish() {
  if (gone_) return over(kStatusGone, "the client went away");
  for (const Answer& completion : report_.choices) {
    if (is_answered(completion)) continue;
    const ApiError error = error_of(completion);
    if (!begun_) return fail(error);
    reply_->stream(writer_->failure(error));
    reply_->end_stream();
    return over(error.status, error.message);
  }
  if (stream_) {
    begin();
    reply_->stream(writer_->end(report_.choices));
    reply_->end_stream();
  } else {
    HttpAnswer answer;
    answer.body = json_line(writer_->whole(report_.choices));
    answer.headers = headers_;
    reply_->send(std::move(answer));
  }
  over(200, "");
}

void Generation::over(int status, const std::string& error) {
  report_.status = status;
  report_.error = error;
  report_.seconds = seconds(Clock::now() - came_);
  if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(report_);
}

}  // namespace kvikk
