#pragma once
// What the server's parts say to each other about HTTP; http_server.h speaks it on sockets.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvikk {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;               // "POST"
  std::string path;                 // as sent, without the query
  std::vector<HttpHeader> headers;  // names in lower case
  std::string body;

  // The value of the first header of this name (in lower case), or null.
  const std::string* header(std::string_view name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<HttpHeader> headers;
};

// Where the answer to one request goes. Used on the network's thread only; calls after the end or
// after the client went away do nothing.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // Either the whole answer,
  virtual void send(HttpAnswer answer) = 0;
  // or its head now (the body is not looked at), pieces as they come, the end.
  virtual void begin_stream(const HttpAnswer& head) = 0;
  virtual void stream(std::string_view bytes) = 0;
  virtual void end_stream() = 0;

  // Calls `gone` once when the client goes away before the end of the answer.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called on the network's thread; it must not wait.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

}  // namespace kvikk
