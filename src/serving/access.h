#pragma once
// Who may ask: API keys, and defences against web pages that make a browser ask on their behalf.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "serving/http.h"

namespace kvikk {

class ApiKeys {
 public:
  static constexpr size_t kKeysMax = 10000;

  // Lines "KEY" or "NAME KEY"; empty ones and those that begin with # are skipped. Errors:
  // kInvalidArgument names `where` and the line.
  static Result<ApiKeys> parse(const std::string& text, const std::string& where);

  bool empty() const { return keys_.empty(); }
  // The number of the key that the request shows, in the order of the file. As "Authorization:
  // Bearer KEY", "x-api-key: KEY", or as the password that a browser asks for. Takes as long for
  // any key: digests are compared, all of them and to the end.
  std::optional<size_t> find(const HttpRequest& request) const;
  // A number for what a key's requests may share, from the key itself; never 0.
  uint64_t client(size_t key) const;
  // "NAME", or "key 3" where the file gives none: for logs.
  const std::string& name(size_t key) const { return keys_[key].name; }

 private:
  struct Key {
    std::string name;
    std::array<uint8_t, 32> digest;  // SHA-256
  };
  std::vector<Key> keys_;
};

// Whether the Host header names this machine: an address, localhost, or one of `names`. A web page
// that points its own name at this address (DNS rebinding) is not let in.
bool is_allowed_host(const std::string& host, const std::vector<std::string>& names);

// Whether the request comes from a page of another origin than this server.
bool is_foreign_origin(const HttpRequest& request);

}  // namespace kvikk
