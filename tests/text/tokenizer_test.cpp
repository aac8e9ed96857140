// The tokenizers against the reference library's ids, and their promises about hostile text.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "text/detokenize_stream.h"
#include "text/utf8.h"
#include "text/vocabularies.h"

namespace kvikk {
namespace {

Tokenizer make(VocabularyData data) {
  Result<Tokenizer> tokenizer = Tokenizer::create(std::move(data));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(*tokenizer);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                   DetokenizeOptions options) {
  DetokenizeStream detokenizer(tokenizer, options);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + detokenizer.finish();
}

class ExcerptTest : public testing::TestWithParam<std::string> {};

TEST_P(ExcerptTest, GivesTheReferenceIds) {
  const Excerpt excerpt = load_excerpt(GetParam());
  ASSERT_GT(excerpt.cases.size(), 100u);
  const Tokenizer tokenizer = make(excerpt.data);
  for (const ExcerptCase& c : excerpt.cases) {
    EXPECT_EQ(tokenizer.encode(c.text, {}), c.ids) << c.text;
    EXPECT_EQ(tokenizer.encode(c.text, {.parse_special = true}), c.ids_special) << c.text;
  }
}

// A control token parts texts, whatever was seen before: the cache of pieces must not show.
TEST_P(ExcerptTest, TextsTogetherAreTextsApart) {
  const Excerpt excerpt = load_excerpt(GetParam());
  const Tokenizer tokenizer = make(excerpt.data);
  const TokenId separator = *tokenizer.bos();
  std::string text;
  std::vector<TokenId> expected;
  for (int round = 0; round < 3; ++round) {
    for (const ExcerptCase& c : excerpt.cases) {
      text += c.text;
      text += tokenizer.token_bytes(separator);
      expected.insert(expected.end(), c.ids_special.begin(), c.ids_special.end());
      expected.push_back(separator);
    }
  }
  EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), expected);
}

TEST_P(ExcerptTest, DecodesToTheText) {
  const Excerpt excerpt = load_excerpt(GetParam());
  const Tokenizer tokenizer = make(excerpt.data);
  size_t exact = 0;
  for (const ExcerptCase& c : excerpt.cases) {
    const std::string decoded = tokenizer.decode(c.ids, true);
    if (decoded == c.text) ++exact;
    EXPECT_EQ(stream(tokenizer, c.ids, {.keep_special = true, .at_start_of_text = true}), decoded);
  }
  // What stays different: text that is not NFC, U+2581, bytes without a token, white space that a
  // control token swallows.
  EXPECT_GT(exact, excerpt.cases.size() * 3 / 5);
}

TEST_P(ExcerptTest, TextNeverBecomesAControlToken) {
  const Excerpt excerpt = load_excerpt(GetParam());
  const Tokenizer tokenizer = make(excerpt.data);
  for (size_t id = 0; id < excerpt.data.tokens.size(); ++id) {
    if (excerpt.data.types[id] != TokenType::kControl) continue;
    const std::string& name = excerpt.data.tokens[id];
    for (const TokenId got : tokenizer.encode("x" + name + "x", {})) {
      EXPECT_FALSE(tokenizer.is_control(got)) << name;
    }
    const std::vector<TokenId> parsed = tokenizer.encode(name, {.parse_special = true});
    EXPECT_EQ(parsed, std::vector<TokenId>{static_cast<TokenId>(id)}) << name;
    EXPECT_EQ(tokenizer.decode(parsed, false), "");
    EXPECT_EQ(tokenizer.decode(parsed, true), name);
  }
}

TEST_P(ExcerptTest, AnyBytesAreEncodedAsWithReplacementCharacters) {
  const Tokenizer tokenizer = make(load_excerpt(GetParam()).data);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (size_t n = random() % 40; n > 0; --n) bytes.push_back(static_cast<char>(random() % 256));
    EXPECT_EQ(tokenizer.encode(bytes, {}), tokenizer.encode(replace_invalid_utf8(bytes), {}));
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ExcerptTest, testing::ValuesIn(excerpt_names()),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) {
                             if (c == '-' || c == '.') c = '_';
                           }
                           return name;
                         });

TEST(TokenizerTest, OneUnbrokenWordTakesLinearTime) {
  for (const char* name : {"smollm2", "qwen2.5-coder", "gemma3", "deepseek-llm"}) {
    const Tokenizer tokenizer = make(load_excerpt(name).data);
    for (const char* unit : {"a", " ", "\n", "0", "=", "e\u0301\u0323", "\u4e2d", " \n\t"}) {
      std::string text;
      while (text.size() < 250000) text += unit;
      text += "b";
      const auto start = std::chrono::steady_clock::now();
      const size_t tokens = tokenizer.encode(text, {}).size();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_GT(tokens, 0u);
      // A quadratic step would take minutes; the bound leaves room for sanitizers and busy
      // machines.
      EXPECT_LT(seconds.count(), 10.0) << name << " '" << unit << "'";
    }
  }
}

TEST(TokenizerTest, BeginsAndEndsAsTheFileSays) {
  VocabularyData data = small_piece_vocabulary({"a"});
  const TokenId a = static_cast<TokenId>(data.tokens.size() - 1);
  EXPECT_EQ(make(data).encode("a", {}), (std::vector<TokenId>{a}));
  EXPECT_EQ(make(data).encode("a", {.add_bos_eos = true}), (std::vector<TokenId>{1, a}));
  data.add_bos = false;
  data.add_eos = true;
  EXPECT_EQ(make(data).encode("a", {.add_bos_eos = true}), (std::vector<TokenId>{a, 2}));
  data.eos.reset();
  EXPECT_EQ(make(data).encode("a", {.add_bos_eos = true}), (std::vector<TokenId>{a}));
}

TEST(TokenizerTest, EndOfGeneration) {
  const Tokenizer smollm2 = make(load_excerpt("smollm2").data);
  EXPECT_TRUE(smollm2.is_end_of_generation(*smollm2.eos()));
  EXPECT_TRUE(smollm2.is_end_of_generation(*smollm2.find_token("<|endoftext|>")));
  EXPECT_FALSE(smollm2.is_end_of_generation(*smollm2.find_token("<|im_start|>")));
  EXPECT_FALSE(smollm2.is_end_of_generation(-1));
  EXPECT_FALSE(smollm2.is_end_of_generation(1 << 30));
  const Tokenizer gemma = make(load_excerpt("gemma3").data);
  EXPECT_TRUE(gemma.is_end_of_generation(*gemma.find_token("<end_of_turn>")));
}

TEST(TokenizerTest, UserDefinedTokensAreFoundControlTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = make(small_byte_vocabulary({"a b"}));
  const TokenId end = *tokenizer.find_token("<end>");
  const TokenId call = *tokenizer.find_token("<call>");
  const TokenId ab = 27;
  // The bytes of "<", ">" have no tokens here and are left out.
  EXPECT_EQ(tokenizer.encode("ab<call>ab<end>", {}),
            (std::vector<TokenId>{ab, call, ab, 4, 13, 3}));
  EXPECT_EQ(tokenizer.encode("ab<call>ab<end>", {.parse_special = true}),
            (std::vector<TokenId>{ab, call, ab, end}));
  EXPECT_FALSE(tokenizer.is_control(call));
  EXPECT_FALSE(tokenizer.find_token("ab").has_value());
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreLeftOut) {
  const Tokenizer tokenizer = make(small_byte_vocabulary({"a b"}));
  const std::vector<TokenId> ids = {-1, 0, 1000000, INT32_MAX, INT32_MIN, 1};
  EXPECT_EQ(tokenizer.decode(ids, true), "ab");
  EXPECT_EQ(stream(tokenizer, ids, {}), "ab");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(static_cast<TokenId>(tokenizer.size())), "");
}

TEST(TokenizerTest, WithoutByteTokensTheUnknownStandsForARun) {
  VocabularyData data = small_piece_vocabulary({"a", "b", "ab"});
  for (size_t id = 3; id < 3 + 256; ++id) data.types[id] = TokenType::kUnused;
  const Tokenizer tokenizer = make(data);
  EXPECT_EQ(tokenizer.encode("abxyza\u4e2d", {}), (std::vector<TokenId>{261, 0, 259, 0}));
  data.unk.reset();
  EXPECT_EQ(make(data).encode("abxyza\u4e2d", {}), (std::vector<TokenId>{261, 259}));
}

TEST(DetokenizeStreamTest, NeverEmitsHalfACharacter) {
  const Tokenizer tokenizer = make(small_piece_vocabulary({"a"}));
  const auto byte = [](int value) { return static_cast<TokenId>(3 + value); };
  DetokenizeStream detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(byte(0xF0)), "");
  EXPECT_EQ(detokenizer.push(byte(0x9F)), "");
  EXPECT_EQ(detokenizer.push(byte(0x98)), "");
  EXPECT_EQ(detokenizer.push(byte(0x80)), "\U0001F600");
  EXPECT_EQ(detokenizer.push(byte(0xE4)), "");
  EXPECT_EQ(detokenizer.push(259), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(byte(0xC3)), "");
  EXPECT_EQ(detokenizer.push(2), "");  // a control token does not cut a character
  EXPECT_EQ(detokenizer.push(byte(0xA9)), "\u00E9");
  EXPECT_EQ(detokenizer.push(byte(0xC3)), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(DetokenizeStreamTest, EqualsDecodeForRandomIds) {
  for (const std::string& name : excerpt_names()) {
    const Tokenizer tokenizer = make(load_excerpt(name).data);
    std::mt19937 random(5);
    for (int i = 0; i < 200; ++i) {
      std::vector<TokenId> ids;
      for (int n = 0; n < 12; ++n) ids.push_back(static_cast<TokenId>(random() % 600));
      for (const bool keep : {false, true}) {
        EXPECT_EQ(stream(tokenizer, ids, {.keep_special = keep, .at_start_of_text = true}),
                  tokenizer.decode(ids, keep));
      }
    }
  }
}

}  // namespace
}  // namespace kvikk
