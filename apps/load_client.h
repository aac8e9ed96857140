#pragma once
// Asks a server of the OpenAI API many things at once and notes when each piece of each answer
// came. One thread: what is measured is the server.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace kvikk {

struct LoadTarget {
  bool tls = false;
  std::string ca_file;  // with TLS: of who may sign certificates; empty: whom the system trusts
  std::string host;
  std::string port;
  std::string path;  // "/v1/completions", behind what the URL has
  std::string key;   // may be empty
};

// "http[s]://HOST[:PORT][/PREFIX]"; with "/v1" at its end or without. Errors: kInvalidArgument.
Result<LoadTarget> parse_load_url(const std::string& url, const std::string& key);

struct LoadRequest {
  double at_seconds = 0;  // since the beginning; with a number of clients nobody asks
  std::string body;       // JSON that asks for a stream with its usage
};

struct LoadResult {
  int status = 0;     // of HTTP; 0: there was no answer
  std::string error;  // why, or what the server said; empty: answered to its end
  double sent_seconds = 0;
  std::vector<double> piece_seconds;  // when each piece of text came
  double end_seconds = 0;
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t completion_tokens = 0;

  bool good() const { return error.empty() && !piece_seconds.empty(); }
};

struct LoadPlan {
  size_t clients = 0;            // so many ask, each again when it was answered; 0: at their times
  double timeout_seconds = 600;  // for a client to hear something
  std::function<bool()> cancelled;
  std::function<void(size_t done)> progress;
};

// In the order of the requests; those that a cancelled run did not send are missing at the end.
// Errors: kIo when nobody listens there, or nobody whose certificate is trusted; kInvalidArgument
// for the file of certificates.
Result<std::vector<LoadResult>> run_load(const LoadTarget& target,
                                         const std::vector<LoadRequest>& requests,
                                         const LoadPlan& plan);

}  // namespace kvikk
