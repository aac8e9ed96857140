#pragma once
// The bytes of one connection, with or without TLS: what Beast reads and writes through.

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <optional>
#include <utility>

namespace kvikk {

class HttpStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using Tls = boost::asio::ssl::stream<boost::beast::tcp_stream&>;

  // tls: null: none.
  HttpStream(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls)
      : tcp_(std::move(socket)) {
    if (tls != nullptr) tls_.emplace(tcp_, *tls);
  }

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::beast::tcp_stream& tcp() { return tcp_; }
  // Null: without TLS.
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }

  template <class Buffers, class Handler>
  auto async_read_some(const Buffers& buffers, Handler&& handler) {
    return tls_ ? tls_->async_read_some(buffers, std::forward<Handler>(handler))
                : tcp_.async_read_some(buffers, std::forward<Handler>(handler));
  }
  template <class Buffers, class Handler>
  auto async_write_some(const Buffers& buffers, Handler&& handler) {
    return tls_ ? tls_->async_write_some(buffers, std::forward<Handler>(handler))
                : tcp_.async_write_some(buffers, std::forward<Handler>(handler));
  }

 private:
  boost::beast::tcp_stream tcp_;
  std::optional<Tls> tls_;  // around tcp_
};

}  // namespace kvikk
