#include "serving/http_session.h"

#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>
#include <chrono>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "serving/http_server.h"

namespace kvikk {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

// Of a client that sends on while its answer is made.
constexpr size_t kPipelinedBytesMax = size_t{64} << 10;
// After a refusal the rest of a request is read and thrown away for a while: closing at once would
// take the refusal from a client that still sends.
constexpr size_t kDiscardedBytesMax = size_t{64} << 20;
constexpr int kLingerSeconds = 5;
constexpr size_t kReadBytes = size_t{16} << 10;

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts));
}

std::string hexadecimal(size_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value % 16]);
    value /= 16;
  } while (value > 0);
  return text;
}

HttpRequest take_request(http::request<http::string_body>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const auto target = message.target();
  request.path = std::string(target.substr(0, target.find('?')));
  for (const auto& field : message) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    request.headers.push_back({std::move(name), std::string(field.value())});
  }
  request.body = std::move(message.body());
  return request;
}

}  // namespace

const std::string* HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (header.name == name) return &header.value;
  }
  return nullptr;
}

// Holds its connection weakly: an answer that still comes keeps nothing open.
class HttpSession::Reply : public HttpReply {
 public:
  explicit Reply(const std::shared_ptr<HttpSession>& session)
      : session_(session), serial_(session->serial_) {}

  void send(HttpAnswer answer) override {
    if (const auto session = live()) session->send(std::move(answer));
  }
  void begin_stream(const HttpAnswer& head) override {
    if (const auto session = live()) session->begin_stream(head);
  }
  void stream(std::string_view bytes) override {
    if (const auto session = live()) session->stream(bytes);
  }
  void end_stream() override {
    if (const auto session = live()) session->end_stream();
  }
  void on_gone(std::function<void()> gone) override {
    if (const auto session = live()) {
      session->gone_ = std::move(gone);
    } else {
      gone();
    }
  }

 private:
  std::shared_ptr<HttpSession> live() const {
    auto session = session_.lock();
    const bool mine = session != nullptr && session->answering() && session->serial_ == serial_;
    return mine ? session : nullptr;
  }

  std::weak_ptr<HttpSession> session_;
  uint64_t serial_;
};

HttpSession::HttpSession(asio::ip::tcp::socket socket, HttpContext& context)
    : context_(context),
      place_(context.sessions.insert(context.sessions.end(), this)),
      stream_(std::move(socket), context.tls),
      buffer_(kHeaderBytesMax + kPipelinedBytesMax) {
  ++context_.connections;
  Error ignored;
  stream_.tcp().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
  stream_.tcp().socket().non_blocking(true, ignored);
}

HttpSession::~HttpSession() {
  context_.sessions.erase(place_);
  --context_.connections;
}

void HttpSession::run() {
  if (stream_.tls() == nullptr) return read_request();
  stream_.tcp().expires_after(std::chrono::seconds(kRequestSecondsMax));
  stream_.tls()->async_handshake(asio::ssl::stream_base::server,
                                 [self = shared_from_this()](Error error) {
                                   if (self->state_ != State::kReading) return;
                                   if (error) return self->close();
                                   self->read_request();
                                 });
}

void HttpSession::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  Error ignored;
  stream_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.tcp().close();
  if (const auto gone = std::move(gone_)) gone();
}

void HttpSession::refuse() {
  if (stream_.tls() != nullptr) return close();  // there is no room for a handshake either
  state_ = State::kAnswering;
  unread_ = true;
  send({503, "text/plain", "too many connections\n", {{"Retry-After", "1"}}});
}

void HttpSession::read_request() {
  if (context_.draining) return close();
  state_ = State::kReading;
  context_.sessions.splice(context_.sessions.end(), context_.sessions, place_);
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(kHeaderBytesMax));
  parser_->body_limit(context_.body_bytes_max);
  stream_.tcp().expires_after(std::chrono::seconds(kRequestSecondsMax));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](Error error, size_t) {
                            if (self->state_ != State::kReading) return;
                            if (error) return self->on_read(error);
                            self->read_body();
                          });
}

void HttpSession::read_body() {
  // Of a request that says that it waits for permission; too large a body is refused before it is
  // sent.
  const auto expect = parser_->get().find(http::field::expect);
  if (expect != parser_->get().end() && !parser_->is_done()) {
    const auto length = parser_->content_length();
    if (length && *length > context_.body_bytes_max) return on_read(http::error::body_limit);
    return permit_body();
  }
  read_rest();
}

void HttpSession::permit_body() {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(stream_, asio::buffer(kContinue),
                    [self = shared_from_this()](Error error, size_t) {
                      if (self->state_ != State::kReading) return;
                      if (error) return self->close();
                      self->read_rest();
                    });
}

void HttpSession::read_rest() {
  stream_.tcp().expires_after(std::chrono::seconds(kRequestSecondsMax));
  http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](Error error, size_t) {
    if (self->state_ == State::kReading) self->on_read(error);
  });
}

void HttpSession::on_read(Error error) {
  if (!error) return dispatch();
  answer_unread(error);
}

// What is no request is told so, unless nobody is there to hear it.
void HttpSession::answer_unread(Error error) {
  int status = 400;
  const char* text = "the request is not HTTP/1.1";
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    status = 431;
    text = "the headers are too large";
  } else if (error == http::error::body_limit) {
    status = 413;
    text = "the body is too large";
  } else if (error.category() != make_error_code(http::error::bad_method).category() ||
             error == http::error::end_of_stream || error == http::error::partial_message) {
    return close();  // the client went away or was too slow
  }
  state_ = State::kAnswering;
  ++serial_;
  keep_alive_ = false;
  unread_ = true;
  send({status,
        "application/json",
        std::string("{\"error\":{\"message\":\"") + text +
            "\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}\n",
        {}});
}

void HttpSession::dispatch() {
  state_ = State::kAnswering;
  ++serial_;
  const auto& message = parser_->get();
  keep_alive_ = message.keep_alive();
  head_only_ = message.method() == http::verb::head;
  chunked_ = message.version() >= 11;
  unread_ = false;
  stream_.tcp().expires_never();
  watch();
  context_.handler(take_request(parser_->get()), std::make_shared<Reply>(shared_from_this()));
}

// Waits for what the client sends next, which may be that it goes away.
void HttpSession::watch() {
  if (stream_.tls() != nullptr) return watch_tls();
  stream_.tcp().socket().async_wait(asio::ip::tcp::socket::wait_read,
                                    [self = shared_from_this(), serial = serial_](Error error) {
                                      if (!error && self->answering() && self->serial_ == serial)
                                        self->on_readable();
                                    });
}

void HttpSession::on_readable() {
  const size_t room = buffer_.max_size() - buffer_.size();
  if (room < kReadBytes) return;  // the rest waits; so does the news that it is gone
  Error error;
  const size_t got = stream_.tcp().socket().read_some(buffer_.prepare(kReadBytes), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) return watch();
  if (error) return close();
  buffer_.commit(got);
  watch();
}

// That a record is there does not say that it holds something, so it is read.
void HttpSession::watch_tls() {
  if (buffer_.max_size() - buffer_.size() < kReadBytes) return;
  watching_ = true;
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Error error, size_t got) {
                            self->watching_ = false;
                            if (self->state_ == State::kClosed) return;
                            self->buffer_.commit(got);
                            if (const auto then = std::exchange(self->after_watch_, nullptr)) {
                              return then();
                            }
                            if (error) return self->answering() ? self->close() : void();
                            self->watch_tls();
                          });
}

// Ends the watch, since two may not read at once, then goes on.
void HttpSession::after_watch(std::function<void()> then) {
  if (!watching_) return then();
  after_watch_ = std::move(then);
  stream_.tcp().cancel();
}

std::string HttpSession::head_of(const HttpAnswer& answer, const std::string& length_line) const {
  const auto reason =
      http::obsolete_reason(http::int_to_status(static_cast<unsigned>(answer.status)));
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " " + std::string(reason) +
                     "\r\nDate: " + http_date() + "\r\nContent-Type: " + answer.content_type +
                     "\r\n" + length_line;
  for (const HttpHeader& header : answer.headers) {
    head += header.name + ": " + header.value + "\r\n";
  }
  return head + (keep_alive_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
}

void HttpSession::send(HttpAnswer answer) {
  if (context_.draining) keep_alive_ = false;
  pending_ += head_of(answer, "Content-Length: " + std::to_string(answer.body.size()) + "\r\n");
  if (!head_only_) pending_ += answer.body;
  finish_answer();
}

void HttpSession::begin_stream(const HttpAnswer& head) {
  keep_alive_ = keep_alive_ && chunked_ && !context_.draining;
  pending_ += head_of(head, chunked_ ? "Transfer-Encoding: chunked\r\n" : "");
}

void HttpSession::stream(std::string_view bytes) {
  if (bytes.empty()) return;
  if (chunked_) pending_ += hexadecimal(bytes.size()) + "\r\n";
  pending_ += bytes;
  if (chunked_) pending_ += "\r\n";
  if (pending_.size() > kUnsentBytesMax) return close();
  write();
}

void HttpSession::end_stream() {
  if (chunked_) pending_ += "0\r\n\r\n";
  finish_answer();
}

void HttpSession::finish_answer() {
  gone_ = {};
  state_ = State::kFinishing;
  write();
}

void HttpSession::write() {
  if (writing_ || pending_.empty()) return;
  writing_ = true;
  written_.clear();
  written_.swap(pending_);
  stream_.tcp().expires_after(std::chrono::seconds(kWriteSecondsMax));
  asio::async_write(stream_, asio::buffer(written_),
                    [self = shared_from_this()](Error error, size_t) { self->on_written(error); });
}

void HttpSession::on_written(Error error) {
  writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return close();
  if (!pending_.empty()) return write();
  if (state_ != State::kFinishing) return stream_.tcp().expires_never();
  after_watch([self = shared_from_this()] {
    if (self->keep_alive_) return self->read_request();
    self->end();
  });
}

// Says that nothing follows, then goes.
void HttpSession::end() {
  stream_.tcp().expires_after(std::chrono::seconds(kLingerSeconds));
  if (unread_) {
    Error error;
    if (stream_.tls() == nullptr) {
      stream_.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
    }
    return error ? close() : linger();
  }
  if (stream_.tls() == nullptr) return close();
  stream_.tls()->async_shutdown([self = shared_from_this()](Error) { self->close(); });
}

void HttpSession::linger() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kReadBytes),
                          [self = shared_from_this()](Error error, size_t got) {
                            if (self->state_ == State::kClosed) return;
                            self->discarded_bytes_ += got;
                            if (error || self->discarded_bytes_ > kDiscardedBytesMax) {
                              return self->close();
                            }
                            self->linger();
                          });
}

}  // namespace kvikk
