#pragma once
// `kvikk serve`: routes requests to the APIs, and their work to one engine.
//
// Three kinds of threads: the network's, which never waits; a few that read requests (JSON,
// template, tokens); the engine's. docs/server.md says what clients see.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace kvikk {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int32_t port = 8080;
  std::string api_key_file;
  std::vector<std::string> alias;
  std::vector<std::string> allow_host;
  int32_t queue = 256;
  int32_t body_mib = 8;
  int32_t request_seconds = 0;
  int32_t drain_seconds = 30;
  bool log_requests = false;

  template <class V>
  void visit(V&& v) {
    v(host, "host", 1, 255, "address to listen on; 0.0.0.0 = all of this machine");
    v(port, "port", 0, 65535, "port to listen on; 0 = any free one");
    v(api_key_file, "api_key_file", 0, 4096, "file of keys, one 'KEY' or 'NAME KEY' a line");
    v(alias, "alias", 1, 255, "a further name that requests may call the model by");
    v(allow_host, "allow_host", 1, 255, "a name that browsers may call this machine by");
    v(queue, "queue", 0, 100000, "requests that may wait; more are told to come back");
    v(body_mib, "body_mib", 1, 1024, "MiB that a request may have");
    v(request_seconds, "request_seconds", 0, 86400, "a request ends after so long; 0 = never");
    v(drain_seconds, "drain_seconds", 0, 86400, "for answers to end after Ctrl-C");
    v(log_requests, "log_requests", false, true, "a line of JSON for each request, without texts");
  }
};

class Server {
 public:
  struct Setup {
    ServerOptions options;
    SamplingOptions sampling;  // where requests do not say
    std::string model;         // its name
    std::string path;          // requests may say this instead; nobody is told
    std::string api_keys;      // what is in the file of that option
    std::function<void(std::string_view line)> log;  // from the network's thread
  };

  // Listens and answers. `engine` must outlive it and is used by it alone. Errors: kIo (the port),
  // kInvalidArgument, those of the tokenizer.
  static Result<std::unique_ptr<Server>> start(Engine& engine, Setup setup);
  // Stops at once.
  ~Server();

  int port() const;
  // Accepts nothing more; what was asked is answered to its end.
  void drain();
  // Everything was answered and sent.
  bool drained() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace kvikk
