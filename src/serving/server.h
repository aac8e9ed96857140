#pragma once
// `kvikk serve`: routes requests to the APIs, and their work to the engine of the model they name.
//
// Three kinds of threads: the network's, which never waits; a few that read requests (JSON,
// template, tokens); one for each engine, and one that loads them (model_host.h). docs/server.md
// says what clients see.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "serving/model_host.h"

namespace kvikk {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int32_t port = 8080;
  std::string tls_cert;
  std::string tls_key;
  std::string api_key_file;
  std::string usage_file;
  std::vector<std::string> alias;
  std::vector<std::string> allow_host;
  int32_t memory_mib = 0;
  int32_t keep_alive = 0;
  int32_t queue = 256;
  int32_t body_mib = 8;
  int32_t request_seconds = 0;
  std::string repetition_guard = "off";
  int32_t drain_seconds = 30;
  bool log_requests = false;

  template <class V>
  void visit(V&& v) {
    v(host, "host", 1, 255, "address to listen on; 0.0.0.0 = all of this machine");
    v(port, "port", 0, 65535, "port to listen on; 0 = any free one");
    v(tls_cert, "tls_cert", 0, 4096, "speak TLS with this certificate (chain) in PEM");
    v(tls_key, "tls_key", 0, 4096, "its private key, in PEM without a password");
    v(api_key_file, "api_key_file", 0, 4096, "file of keys, one 'KEY' or 'NAME KEY' a line");
    v(usage_file, "usage_file", 0, 4096, "SQLite file that counts the tokens of each key");
    v(alias, "alias", 1, 255, "a further name that requests may call the first model by");
    v(allow_host, "allow_host", 1, 255, "a name that browsers may call this machine by");
    v(memory_mib, "memory_mib", 0, 1 << 24,
      "MiB for the weights and caches of all models; 0 = automatic");
    v(keep_alive, "keep_alive", 0, 1 << 24, "seconds until an unused model is unloaded; 0 = never");
    v(queue, "queue", 0, 100000, "requests of a model that may wait; more are told to come back");
    v(body_mib, "body_mib", 1, 1024, "MiB that a request may have");
    v(request_seconds, "request_seconds", 0, 86400, "a request ends after so long; 0 = never");
    v(repetition_guard, "repetition_guard", 1, 16,
      "for answers that go round in circles: off, stop, retry");
    v(drain_seconds, "drain_seconds", 0, 86400, "for answers to end after Ctrl-C");
    v(log_requests, "log_requests", false, true, "a line of JSON for each request, without texts");
  }
};

class Server {
 public:
  struct Setup {
    ServerOptions options;
    SamplingOptions sampling;         // where requests do not say
    std::vector<ServedModel> models;  // the first is loaded now, and meant where none is named
    size_t memory_bytes_max = 0;      // of all their weights and caches; 0: no limit
    std::string api_keys;             // what is in the file of that option
    std::function<void(std::string_view line)> log;     // from the network's thread
    std::function<void(const std::string& text)> note;  // for people; from any thread
  };

  // Loads the first model, listens and answers. Errors: those of loading; kIo (the port),
  // kInvalidArgument.
  static Result<std::unique_ptr<Server>> start(Setup setup);
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
