// Any bytes as a tokenizer.json and as the small files beside it: an error with a message, or a
// tokenizer that keeps its promises.
//
// Input: the tokenizer.json, then, after a zero byte, the tokenizer_config.json, then, after
// another, a text.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/tokenizer_json.h"
#include "token_checks.h"

namespace kvikk {
namespace {

std::string_view take_part(std::string_view* left) {
  const size_t end = left->find('\0');
  const std::string_view part = left->substr(0, end);
  left->remove_prefix(end == std::string_view::npos ? left->size() : end + 1);
  return part;
}

void check_files(std::string_view input) {
  constexpr size_t kTextBytesMax = 256;
  TokenizerFiles files;
  files.folder = "model";
  files.tokenizer = take_part(&input);
  files.tokenizer_config = take_part(&input);
  files.generation_config = files.tokenizer_config;
  const Result<std::optional<std::string>> source = chat_template_from_json(files);
  if (!source.ok()) CHECK(!source.status().message().empty());
  const Result<Tokenizer> tokenizer = tokenizer_from_json(files);
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.status().message().empty());
    return;
  }
  check_encoding(*tokenizer, input.substr(0, kTextBytesMax));
  check_encoding(*tokenizer, "The e\xCC\x81 12\n a\xFF<s>\xE2\x96\x81 aa");
}

}  // namespace
}  // namespace kvikk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  kvikk::check_files(std::string_view(reinterpret_cast<const char*>(bytes), size));
  return 0;
}
