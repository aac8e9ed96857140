// Any vocabulary and a text: creating a tokenizer gives an error or one that keeps its promises.
// Texts of all kinds are the business of tokenizer.cpp, which does not make one each time.
//
// Input: one byte of settings, then strings with a length byte in front, in two lists that end at a
// length of 0xFF: tokens (their first byte is the type), merges; what is left is the text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "token_checks.h"

namespace kvikk {
namespace {

class Input {
 public:
  explicit Input(std::string_view bytes) : left_(bytes) {}

  uint8_t byte() {
    if (left_.empty()) return 0;
    const auto value = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return value;
  }

  std::vector<std::string> strings() {
    std::vector<std::string> list;
    while (!left_.empty()) {
      const uint8_t size = byte();
      if (size == 0xFF) break;
      list.emplace_back(left_.substr(0, size));
      left_.remove_prefix(list.back().size());
    }
    return list;
  }

  std::string_view rest() const { return left_; }

 private:
  std::string_view left_;
};

VocabularyData read_vocabulary(Input* input) {
  VocabularyData data;
  const uint8_t settings = input->byte();
  constexpr const char* kModels[] = {"gpt2", "llama", "t5", "bert"};
  data.model = kModels[(settings & 1) + (settings >> 5 & 2)];
  const std::vector<std::string_view> names = pretokenizer_names();
  data.pre = names[settings / 8 % 4];  // the first few, which are quick to make
  data.architecture = settings & 2 ? "gemma3" : settings & 4 ? "phi3" : "";
  if (settings & 4) data.add_space_prefix = true;
  for (const std::string& string : input->strings()) {
    const uint8_t type = string.empty() ? 1 : static_cast<uint8_t>(string[0]);
    data.types.push_back(static_cast<TokenType>(type & 7));
    data.scores.push_back(static_cast<float>(type >> 3));
    data.tokens.push_back(string.empty() ? string : string.substr(1));
  }
  // Every byte, so that most texts can be expressed.
  for (int i = 0; i < 256 && settings & 0x80; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    data.tokens.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
    data.types.push_back(settings & 1 ? TokenType::kByte : TokenType::kControl);
    data.scores.push_back(0.0f);
  }
  data.merges = input->strings();
  data.bos = input->byte() % 4;
  data.unk = input->byte() % 4;
  return data;
}

}  // namespace
}  // namespace kvikk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace kvikk;
  Input input(std::string_view(reinterpret_cast<const char*>(bytes), size));
  const VocabularyData data = read_vocabulary(&input);
  const Result<Tokenizer> tokenizer = Tokenizer::create(data);
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  check_encoding(*tokenizer, input.rest());
  return 0;
}
