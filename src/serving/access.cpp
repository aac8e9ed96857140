#include "serving/access.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>

#include "base/check.h"

namespace kvikk {
namespace {

constexpr size_t kKeyBytesMax = 512;

std::array<uint8_t, 32> digest_of(std::string_view text) {
  std::array<uint8_t, 32> digest{};
  CHECK(EVP_Digest(text.data(), text.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Empty where it is no base64.
std::string from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > 4 * kKeyBytesMax) return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  if (length < 0) return {};
  const auto padding = static_cast<size_t>(std::count(text.end() - 2, text.end(), '='));
  bytes.resize(static_cast<size_t>(length) - padding);
  return bytes;
}

std::string key_of(const HttpRequest& request) {
  if (const std::string* key = request.header("x-api-key")) return *key;
  const std::string* header = request.header("authorization");
  if (header == nullptr) return {};
  const size_t space = std::min(header->find(' '), header->size());
  const std::string scheme = lower(header->substr(0, space));
  const size_t begin = std::min(header->find_first_not_of(' ', space), header->size());
  const std::string value = header->substr(begin);
  if (scheme == "bearer") return value;
  if (scheme != "basic") return {};
  const std::string pair = from_base64(value);
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? std::string() : pair.substr(colon + 1);
}

// The host of "HOST", "HOST:PORT" or "[::1]:PORT"; what follows must be a port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string_view::npos ? std::string_view() : host.substr(0, end + 1);
  }
  return host.substr(0, host.find(':'));
}

bool is_address(std::string_view name) {
  if (name.starts_with('[')) return true;
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

Result<ApiKeys> ApiKeys::parse(const std::string& text, const std::string& where) {
  ApiKeys keys;
  size_t number = 0;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    const std::string place = where + ":" + std::to_string(number + 1) + ": ";
    const size_t space = line.find(' ');
    const std::string key = space == std::string::npos ? line : line.substr(space + 1);
    if (key.empty() || key.size() > kKeyBytesMax || key.find(' ') != std::string::npos) {
      return invalid_argument(place + "must be KEY or NAME KEY, a key of at most " +
                              std::to_string(kKeyBytesMax) + " bytes without spaces");
    }
    if (keys.keys_.size() >= kKeysMax) {
      return invalid_argument(place + "more than " + std::to_string(kKeysMax) + " keys");
    }
    const std::string name = space == std::string::npos
                                 ? "key " + std::to_string(keys.keys_.size() + 1)
                                 : line.substr(0, space);
    const auto digest = digest_of(key);
    for (const Key& before : keys.keys_) {
      if (before.digest != digest) continue;
      return invalid_argument(place + "is the key of '" + before.name + "' again");
    }
    keys.keys_.push_back({name, digest});
  }
  if (keys.keys_.empty()) return invalid_argument(where + ": has no key");
  return keys;
}

std::optional<size_t> ApiKeys::find(const HttpRequest& request) const {
  const auto shown = digest_of(key_of(request));
  std::optional<size_t> found;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (CRYPTO_memcmp(shown.data(), keys_[i].digest.data(), shown.size()) == 0) found = i;
  }
  return found;
}

uint64_t ApiKeys::client(size_t key) const {
  uint64_t number = 0;
  std::memcpy(&number, keys_[key].digest.data(), sizeof number);
  return std::max<uint64_t>(number, 1);
}

bool is_allowed_host(const std::string& host, const std::vector<std::string>& names) {
  const std::string name = lower(host_name(host));
  if (is_address(name) || name == "localhost") return true;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& allowed) { return lower(allowed) == name; });
}

bool is_foreign_origin(const HttpRequest& request) {
  const std::string* origin = request.header("origin");
  if (origin == nullptr) return false;
  const std::string* host = request.header("host");
  const size_t begin = origin->find("://");
  return host == nullptr || begin == std::string::npos ||
         lower(std::string_view(*origin).substr(begin + 3)) != lower(*host);
}

}  // namespace kvikk
