// Any text: every pre-tokenizer and every kind of model keeps its promises. The tokenizers are made
// once, so that runs are quick.
//
// Input: one byte that picks the tokenizer; what is left is the text.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "token_checks.h"

namespace kvikk {
namespace {

constexpr size_t kTextBytesMax = 512;

constexpr const char* kWords[] = {"th", "he", "the", "in", "an", "and", "er", "11", "aa", "aaaa"};

void add(VocabularyData* data, std::string token, TokenType type, float score) {
  data->tokens.push_back(std::move(token));
  data->types.push_back(type);
  data->scores.push_back(score);
}

VocabularyData special_tokens(const char* model) {
  VocabularyData data;
  data.model = model;
  add(&data, "<unk>", TokenType::kUnknown, 0);
  add(&data, "<s>", TokenType::kControl, 0);
  add(&data, "<|x|>", TokenType::kUserDefined, 0);
  data.unk = 0;
  data.bos = 1;
  return data;
}

VocabularyData byte_vocabulary(std::string_view pre) {
  VocabularyData data = special_tokens("gpt2");
  data.pre = pre;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    add(&data, write_bytes(std::string_view(&c, 1)), TokenType::kNormal, 0);
  }
  const std::pair<const char*, const char*> merges[] = {
      {"t", "h"}, {"h", "e"}, {"th", "e"},     {"i", "n"},           {"a", "n"},
      {"1", "1"}, {"a", "a"}, {"\u0120", "a"}, {"\u00c3", "\u00a9"}, {"aa", "aa"}};
  for (const auto& [left, right] : merges) {
    add(&data, std::string(left) + right, TokenType::kNormal, 0);
    data.merges.push_back(std::string(left) + " " + right);
  }
  return data;
}

// Pieces with "\u2581" for a space, and byte tokens if `with_bytes`.
VocabularyData piece_vocabulary(const char* model, const char* architecture, bool with_bytes) {
  VocabularyData data = special_tokens(model);
  data.architecture = architecture;
  for (int byte = 0; with_bytes && byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    add(&data, std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::kByte, 0);
  }
  float score = -1;
  for (const char* letter : {"\u2581", "t", "h", "e", "a", "n", "1", "\u00e9", "\u4e2d"}) {
    add(&data, letter, TokenType::kNormal, score -= 1);
  }
  for (const char* word : kWords) {
    add(&data, word, TokenType::kNormal, score -= 1);
    add(&data, std::string("\u2581") + word, TokenType::kNormal, score -= 1);
  }
  return data;
}

std::vector<Tokenizer> make_tokenizers() {
  std::vector<VocabularyData> vocabularies;
  for (const std::string_view pre : pretokenizer_kinds()) {
    vocabularies.push_back(byte_vocabulary(pre));
  }
  for (const bool with_bytes : {false, true}) {
    for (const char* architecture : {"llama", "gemma3", "phi3"}) {
      vocabularies.push_back(piece_vocabulary("llama", architecture, with_bytes));
    }
    vocabularies.push_back(piece_vocabulary("t5", "t5", with_bytes));
  }
  vocabularies.push_back(piece_vocabulary("bert", "bert", false));
  std::vector<Tokenizer> tokenizers;
  for (VocabularyData& data : vocabularies) {
    Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data));
    CHECK(tokenizer.ok());
    tokenizers.push_back(std::move(*tokenizer));
  }
  return tokenizers;
}

}  // namespace
}  // namespace kvikk

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const std::vector<kvikk::Tokenizer> tokenizers = kvikk::make_tokenizers();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  kvikk::check_encoding(tokenizers[bytes[0] % tokenizers.size()],
                        text.substr(0, kvikk::kTextBytesMax));
  return 0;
}
