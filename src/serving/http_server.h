#pragma once
// HTTP/1.1 on sockets: one thread that never waits for a client. A slow client has its own buffers
// and its own time-outs; one that goes away is noticed at once, also while its answer is computed.
//
// A client that closes its sending half counts as gone: a closed connection looks just the same.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "serving/http.h"

namespace kvikk {

inline constexpr size_t kHeaderBytesMax = size_t{32} << 10;  // of a request; beyond: 431
inline constexpr size_t kConnectionsMax = 1024;              // then the longest idle one makes room
inline constexpr int kRequestSecondsMax = 60;  // for a client to send a request, or stay idle
inline constexpr int kWriteSecondsMax = 60;    // for a client to take what was written
inline constexpr size_t kUnsentBytesMax = size_t{16} << 20;  // of a stream that nobody reads

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;                             // 0: any free one
  size_t body_bytes_max = size_t{8} << 20;  // of a request; beyond: 413
  std::string tls_cert;                     // PEM files; empty: without TLS
  std::string tls_key;
};

// kInvalidArgument where these are no certificate and key that belong together.
Status check_tls_files(const std::string& cert, const std::string& key);

class HttpServer {
 public:
  // Binds and listens; nothing is accepted before start(). Errors: kIo, kInvalidArgument.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerOptions& options);
  // Stops.
  ~HttpServer();

  int port() const;
  // Starts the thread. Call it once.
  void start(HttpHandler handler);
  // Runs `task` on the network's thread. From any thread.
  void post(std::function<void()> task);
  // Accepts nobody any more and closes connections that wait for nothing. From any thread.
  void stop_accepting();
  // Ends every connection and the thread. Not from the network's thread.
  void stop();
  size_t connections() const;

 private:
  struct Parts;
  explicit HttpServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace kvikk
