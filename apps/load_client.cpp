#include "load_client.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>

#include "serving/http_stream.h"
#include "text/json_text.h"
#include "text/option_entry.h"

namespace kvikk {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Error = beast::error_code;
using Clock = std::chrono::steady_clock;

constexpr size_t kAnswerBytesMax = size_t{256} << 20;
constexpr auto kLookPause = std::chrono::milliseconds(50);  // for an interrupt

class Run;

// One request, from its connection to the end of its answer.
class Asking : public std::enable_shared_from_this<Asking> {
 public:
  Asking(Run& run, size_t index);
  void start();
  void stop() { stream_.tcp().close(); }

 private:
  void shake_hands();
  void write();
  void read();
  void take(bool complete);
  void take_line(std::string_view line);
  void end(const std::string& error, bool connected = true);

  Run& run_;
  const size_t index_;
  HttpStream stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  size_t taken_ = 0;  // bytes of the body
  bool finished_ = false;
};

class Run {
 public:
  Run(const LoadTarget& target, const std::vector<LoadRequest>& requests, const LoadPlan& plan)
      : target_(target), requests_(requests), plan_(plan), results_(requests.size()) {}

  Result<std::vector<LoadResult>> run();
  // One is over; another may begin.
  void over(Asking& asking, bool connected);

  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  asio::io_context& io() { return io_; }
  // Null: without TLS.
  asio::ssl::context* tls() { return tls_ ? &*tls_ : nullptr; }
  const LoadTarget& target() const { return target_; }
  const LoadPlan& plan() const { return plan_; }
  const tcp::resolver::results_type& places() const { return places_; }
  const LoadRequest& request(size_t index) const { return requests_[index]; }
  LoadResult& result(size_t index) { return results_[index]; }

 private:
  Status set_up_tls();
  bool finished() const { return open_.empty() && (stopped_ || next_ == requests_.size()); }
  void start_next();
  void wait_for_time();
  void look();

  const LoadTarget& target_;
  const std::vector<LoadRequest>& requests_;
  const LoadPlan& plan_;
  std::vector<LoadResult> results_;
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_{1};
  asio::steady_timer arrival_{io_};
  asio::steady_timer looking_{io_};
  tcp::resolver::results_type places_;
  std::set<Asking*> open_;
  Clock::time_point begin_;
  size_t next_ = 0;  // to be sent
  size_t done_ = 0;
  bool stopped_ = false;
  bool reached_ = false;  // somebody listened
};

Asking::Asking(Run& run, size_t index)
    : run_(run), index_(index), stream_(tcp::socket(run.io()), run.tls()) {
  const LoadTarget& target = run.target();
  request_ = {http::verb::post, target.path, 11};
  request_.set(http::field::host, target.host + ":" + target.port);
  request_.set(http::field::content_type, "application/json");
  request_.set(http::field::connection, "close");
  if (!target.key.empty()) request_.set(http::field::authorization, "Bearer " + target.key);
  request_.body() = run.request(index).body;
  request_.prepare_payload();
  parser_.body_limit(kAnswerBytesMax);
}

void Asking::start() {
  run_.result(index_).sent_seconds = run_.now();
  const auto timeout = std::chrono::duration<double>(run_.plan().timeout_seconds);
  stream_.tcp().expires_after(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  stream_.tcp().async_connect(
      run_.places(), [self = shared_from_this()](Error error, const tcp::endpoint&) {
        if (error) return self->end(error.message(), false);
        Error ignored;
        self->stream_.tcp().socket().set_option(tcp::no_delay(true), ignored);
        if (self->stream_.tls() == nullptr) return self->write();
        self->shake_hands();
      });
}

void Asking::shake_hands() {
  HttpStream::Tls& tls = *stream_.tls();
  const std::string& host = run_.target().host;
  Error error;
  tls.set_verify_callback(asio::ssl::host_name_verification(host), error);
  if (error) return end(error.message(), false);
  // The name for a server of several; an address is not sent.
  Error no_address;
  asio::ip::make_address(host, no_address);
  if (no_address) SSL_set_tlsext_host_name(tls.native_handle(), host.c_str());
  tls.async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](Error failed) {
    if (failed) return self->end(failed.message(), false);
    self->write();
  });
}

void Asking::write() {
  http::async_write(stream_, request_, [self = shared_from_this()](Error error, size_t) {
    if (error) return self->end(error.message());
    self->read();
  });
}

void Asking::read() {
  const auto timeout = std::chrono::duration<double>(run_.plan().timeout_seconds);
  stream_.tcp().expires_after(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  http::async_read_some(stream_, buffer_, parser_,
                        [self = shared_from_this()](Error error, size_t) {
                          self->take(static_cast<bool>(error) || self->parser_.is_done());
                          if (self->finished_) return;
                          if (error) return self->end(error.message());
                          if (self->parser_.is_done()) return self->end({});
                          self->read();
                        });
}

// The lines that are whole.
void Asking::take(bool complete) {
  if (!parser_.is_header_done()) return;
  LoadResult& result = run_.result(index_);
  result.status = parser_.get().result_int();
  const std::string& body = parser_.get().body();
  if (result.status != 200) {
    if (complete) end(std::to_string(result.status) + ": " + short_text(body));
    return;
  }
  for (size_t end = 0; (end = body.find('\n', taken_)) != std::string::npos; taken_ = end + 1) {
    take_line(std::string_view(body).substr(taken_, end - taken_));
    if (finished_) return;
  }
}

void Asking::take_line(std::string_view line) {
  constexpr std::string_view kData = "data: ";
  if (!line.starts_with(kData) || line.substr(kData.size()).starts_with("[DONE]")) return;
  const double now = run_.now();
  LoadResult& result = run_.result(index_);
  const auto event = parse_json_object(line.substr(kData.size()), "the server's answer");
  if (!event.ok()) return end(event.status().message());
  if (event->contains("error")) return end(short_text((*event)["error"].dump()));
  const auto choices = event->find("choices");
  if (choices != event->end() && choices->is_array() && !choices->empty()) {
    const auto& choice = choices->front();
    if (choice.is_object() && choice.contains("text") && choice["text"].is_string() &&
        !choice["text"].get_ref<const std::string&>().empty()) {
      result.piece_seconds.push_back(now);
    }
  }
  const auto usage = event->find("usage");
  if (usage == event->end() || !usage->is_object()) return;
  result.prompt_tokens = json_unsigned(*usage, "prompt_tokens").value_or(0);
  result.completion_tokens = json_unsigned(*usage, "completion_tokens").value_or(0);
  const auto details = usage->find("prompt_tokens_details");
  if (details != usage->end() && details->is_object()) {
    result.cached_tokens = json_unsigned(*details, "cached_tokens").value_or(0);
  }
}

void Asking::end(const std::string& error, bool connected) {
  if (finished_) return;
  finished_ = true;
  LoadResult& result = run_.result(index_);
  result.end_seconds = run_.now();
  result.error = error;
  if (error.empty() && result.piece_seconds.empty()) result.error = "the answer has no text";
  stream_.tcp().close();
  run_.over(*this, connected);
}

void Run::start_next() {
  const auto asking = std::make_shared<Asking>(*this, next_++);
  open_.insert(asking.get());
  asking->start();
}

void Run::wait_for_time() {
  if (stopped_ || next_ == requests_.size()) return;
  const auto at = std::chrono::duration<double>(requests_[next_].at_seconds);
  arrival_.expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(at));
  arrival_.async_wait([this](Error error) {
    if (error || stopped_) return;
    start_next();
    wait_for_time();
  });
}

void Run::over(Asking& asking, bool connected) {
  open_.erase(&asking);
  reached_ |= connected;
  ++done_;
  if (plan_.progress) plan_.progress(done_);
  if (!stopped_ && plan_.clients > 0 && next_ < requests_.size()) start_next();
  if (finished()) looking_.cancel();
}

// Whether the run was cancelled, now and then.
void Run::look() {
  if (finished()) return;
  if (plan_.cancelled && plan_.cancelled()) {
    stopped_ = true;
    arrival_.cancel();
    const std::set<Asking*> open = open_;
    for (Asking* asking : open) asking->stop();
    return;
  }
  looking_.expires_after(kLookPause);
  looking_.async_wait([this](Error error) {
    if (!error) look();
  });
}

Status Run::set_up_tls() {
  Error error;
  tls_.emplace(asio::ssl::context::tls_client);
  tls_->set_verify_mode(asio::ssl::verify_peer, error);
  if (!error && target_.ca_file.empty()) tls_->set_default_verify_paths(error);
  if (!error && !target_.ca_file.empty()) tls_->load_verify_file(target_.ca_file, error);
  if (!error) return ok_status();
  return invalid_argument("--ca-file " + target_.ca_file + ": " + error.message());
}

Result<std::vector<LoadResult>> Run::run() {
  if (target_.tls) TRY(set_up_tls());
  Error error;
  tcp::resolver resolver(io_);
  places_ = resolver.resolve(target_.host, target_.port, error);
  if (error) return io_error(target_.host + ": " + error.message());
  begin_ = Clock::now();
  if (plan_.clients > 0) {
    while (next_ < std::min(plan_.clients, requests_.size())) start_next();
  } else {
    wait_for_time();
  }
  look();
  io_.run();
  if (!reached_ && !stopped_) {
    return io_error(target_.host + ":" + target_.port + ": " + results_.front().error);
  }
  results_.resize(next_);
  return std::move(results_);
}

}  // namespace

Result<LoadTarget> parse_load_url(const std::string& url, const std::string& key) {
  const auto wrong = [&] {
    return invalid_argument("--url is '" + short_text(url) +
                            "'; it must be http://HOST[:PORT] or https://HOST[:PORT]");
  };
  const bool tls = url.starts_with("https://");
  if (!tls && !url.starts_with("http://")) return wrong();
  const size_t begin = url.find("//") + 2;
  const size_t slash = std::min(url.find('/', begin), url.size());
  const std::string host = url.substr(begin, slash - begin);
  std::string prefix = url.substr(slash);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.ends_with("/v1")) prefix += "/v1";
  const size_t colon = host.rfind(':');
  const bool has_port = colon != std::string::npos && host.find(']', colon) == std::string::npos;
  LoadTarget target;
  target.host = has_port ? host.substr(0, colon) : host;
  target.tls = tls;
  target.port = has_port ? host.substr(colon + 1) : tls ? "443" : "80";
  if (target.host.starts_with('[') && target.host.ends_with(']')) {
    target.host = target.host.substr(1, target.host.size() - 2);
  }
  if (target.host.empty() || !parse_number<uint16_t>(target.port).has_value()) return wrong();
  target.path = prefix + "/completions";
  target.key = key;
  return target;
}

Result<std::vector<LoadResult>> run_load(const LoadTarget& target,
                                         const std::vector<LoadRequest>& requests,
                                         const LoadPlan& plan) {
  return Run(target, requests, plan).run();
}

}  // namespace kvikk
