#pragma once
// One connection of the HTTP server: reads a request, hands it on, writes its answer, and so on.
// Everything happens on the network's thread.

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "serving/http.h"
#include "serving/http_stream.h"

namespace kvikk {

class HttpSession;
// The connections, those that have been idle for longest first.
using HttpSessions = std::list<HttpSession*>;

struct HttpContext {
  HttpHandler handler;
  size_t body_bytes_max = 0;
  boost::asio::ssl::context* tls = nullptr;  // null: connections are not encrypted
  bool draining = false;                     // connections end with the answer that they wait for
  HttpSessions sessions;
  std::atomic<size_t> connections{0};  // how many those are
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, HttpContext& context);
  ~HttpSession();

  void run();
  bool reading() const { return state_ == State::kReading; }
  bool answering() const { return state_ == State::kAnswering; }
  // Ends the connection; whoever computes its answer is told.
  void close();
  // Says that there is no room and ends it.
  void refuse();

 private:
  using Error = boost::beast::error_code;
  enum class State {
    kReading,    // waits for a request
    kAnswering,  // its answer is being made
    kFinishing,  // the last bytes are written, then the connection ends
    kClosed,
  };
  class Reply;

  void read_request();
  void read_body();
  void permit_body();
  void read_rest();
  void on_read(Error error);
  void answer_unread(Error error);
  void dispatch();
  void watch();
  void on_readable();
  void watch_tls();
  void after_watch(std::function<void()> then);

  void send(HttpAnswer answer);
  void begin_stream(const HttpAnswer& head);
  void stream(std::string_view bytes);
  void end_stream();
  std::string head_of(const HttpAnswer& answer, const std::string& length_line) const;
  void finish_answer();
  void write();
  void on_written(Error error);
  void end();
  void linger();

  HttpContext& context_;
  HttpSessions::iterator place_;
  HttpStream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  State state_ = State::kReading;
  uint64_t serial_ = 0;  // of the request; an older one's Reply has no say any more
  bool keep_alive_ = false;
  bool head_only_ = false;  // the request was HEAD
  bool chunked_ = false;
  bool unread_ = false;  // the request was not read to its end
  bool writing_ = false;
  std::string written_;                // what the system is taking now
  std::string pending_;                // what follows
  bool watching_ = false;              // with TLS: a read waits for what the client sends next
  std::function<void()> after_watch_;  // then this
  size_t discarded_bytes_ = 0;
  std::function<void()> gone_;
};

}  // namespace kvikk
