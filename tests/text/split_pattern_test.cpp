// The engine for pre-tokenizers' regular expressions, against PCRE2 and by hand.
#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>

#include "text/pretokenizer.h"

namespace kvikk {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const std::string& regex, const std::string& text) {
  const Result<SplitPattern> pattern = SplitPattern::compile(regex);
  EXPECT_TRUE(pattern.ok()) << pattern.status().message();
  Pieces pieces;
  pattern->split(text, [&](std::string_view piece, bool) { pieces.emplace_back(piece); });
  return pieces;
}

Pieces split_by_pcre2(const std::string& regex, const std::string& text) {
  int error;
  PCRE2_SIZE error_offset;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &error_offset, nullptr),
      pcre2_code_free);
  EXPECT_NE(code, nullptr) << error_offset;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  Pieces pieces;
  size_t at = 0;
  while (at < text.size()) {
    const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found < 0) break;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    if (at < bounds[0]) pieces.push_back(text.substr(at, bounds[0] - at));
    pieces.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
    at = bounds[1];
  }
  if (at < text.size()) pieces.push_back(text.substr(at));
  return pieces;
}

TEST(SplitPatternTest, AgreesWithPcre2) {
  const std::string regexes[] = {
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
      R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"((?i:'s|'t|'d)?)"
      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
      R"((?i:'s|'t|'d)?)"
      R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
      R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"(\s?[A-Za-z\x{C0}-\x{24F}]+)",
      R"([^(\s|.,!?)]+)",
      R"(\p{L}++\p{N}|\p{N}{2,}(?:ab|[cd]e)?|\s{2})",
      R"(a*ab|a+b?a)",
  };
  const std::string parts[] = {"a",      "b",      "Ab", "ABc",       "c",  "e", " ",      "  ",
                               "\n",     "\r",     "\t", "1",         "23", "'", "s",      "'S",
                               "'ll",    ".",      "!?", "(",         "/",  "$", "\u00E9", "\u4E2D",
                               "\u0301", "_",      "-",  "~",         "ſ",  "ǅ", "½",      "\u3000",
                               "\u00A0", "\u2028", "ʰ",  "\U0001F600"};
  std::mt19937 random(11);
  for (const std::string& regex : regexes) {
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      for (size_t n = random() % 16; n > 0; --n) text += parts[random() % std::size(parts)];
      ASSERT_EQ(split(regex, text), split_by_pcre2(regex, text)) << regex << "\n" << text;
    }
  }
}

TEST(CharClassTest, TablesForAsciiAreUnicodes) {
  for (const char* name : {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "Z"}) {
    CharClass set;
    set.add_categories(property_mask(name));
    for (char32_t c = 0; c < 0x250; ++c) {
      EXPECT_EQ(set.contains(c), (category_bit(c) & property_mask(name)) != 0)
          << name << ' ' << static_cast<uint32_t>(c);
    }
  }
  CharClass space;
  CharClass other;
  space.add_white_space();
  other.add_non_white_space();
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    ASSERT_EQ(space.contains(c), is_white_space(c)) << static_cast<uint32_t>(c);
    ASSERT_EQ(other.contains(c), !is_white_space(c)) << static_cast<uint32_t>(c);
  }
}

TEST(SplitPatternTest, LineEnds) {
  EXPECT_EQ(split(R"(\s+$)", "a  b  "), (Pieces{"a  b", "  "}));
  EXPECT_EQ(split(R"(x+$)", "xx\nxxy xx"), (Pieces{"xx", "\nxxy ", "xx"}));
}

TEST(SplitPatternTest, WhiteSpaceIsUnicodes) {
  // U+180E is no white space (PCRE2 says it is), U+0085 and U+2028 are.
  EXPECT_EQ(split(R"(\s)", "\u180E\u0085\u2028x"), (Pieces{"\u180E", "\u0085", "\u2028", "x"}));
  EXPECT_EQ(split(R"(\S+)", "a\u180Eb \u0085c"), (Pieces{"a\u180Eb", " \u0085", "c"}));
}

TEST(SplitPatternTest, LongRunsAreLinear) {
  // Each start in the run fails only after looking at all of it, unless failures are remembered.
  const std::string text = std::string(300000, ' ') + "b";
  EXPECT_EQ(split(R"(\s+$)", text).size(), 1u);
  EXPECT_EQ(split(R"(\s*[\r\n]+)", text).size(), 1u);
}

TEST(SplitPatternTest, RefusesWhatItDoesNotKnow) {
  for (const char* regex :
       {"",       "a**",    "(?=a)",     "(?<!a)b",     "a|",   "|a",   "a?",   "\\s*",    "[a",
        "(a",     "a)",     "\\",        "\\p{Foo}",    "\\pL", "\\d",  "\\b",  "[z-a]",   "[a&&b]",
        "[a[b]]", "a{2,1}", "a{0}",      "a{9999}",     "a{",   "x+?",  "(|a)", "()",      ".",
        "^a",     "\\x41",  "\\x{D800}", "\\x{110000}", "\\u",  "\xFF", "$",    "(?!\\S)", "(?"}) {
    const Result<SplitPattern> pattern = SplitPattern::compile(regex);
    EXPECT_FALSE(pattern.ok()) << regex;
    if (pattern.ok()) continue;
    EXPECT_EQ(pattern.status().code(), StatusCode::kUnsupported);
  }
  EXPECT_FALSE(SplitPattern::compile(std::string(5000, 'a')).ok());
}

Pieces pretokenize(std::string_view name, std::string_view text) {
  const Result<Pretokenizer> pretokenizer = Pretokenizer::create(name);
  EXPECT_TRUE(pretokenizer.ok());
  Pieces pieces;
  TextArena arena;
  pretokenizer->split(text, true, &arena,
                      [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(PretokenizerTest, PublishedExamples) {
  EXPECT_EQ(pretokenize("gpt-2", "I'm  12345 x"), (Pieces{"I", "'m", " ", " 12345", " x"}));
  EXPECT_EQ(pretokenize("smollm", "a 123"), (Pieces{"a", " ", "1", "2", "3"}));
  EXPECT_EQ(pretokenize("llama-bpe", "I'M 12345\n\n x"),
            (Pieces{"I", "'M", " ", "123", "45", "\n\n", " x"}));
  EXPECT_EQ(pretokenize("qwen2", "123 (a)\n"), (Pieces{"1", "2", "3", " (", "a", ")\n"}));
  EXPECT_EQ(pretokenize("gpt-4o", "HTTPServer's/\n"), (Pieces{"HTTPServer's", "/\n"}));
  EXPECT_EQ(pretokenize("tekken", "camelCase's"), (Pieces{"camel", "Case", "'s"}));
  EXPECT_EQ(pretokenize("deepseek-v3", "1234 \u4E2D\u6587ab"),
            (Pieces{"123", "4", " ", "\u4E2D\u6587", "ab"}));
  EXPECT_EQ(pretokenize("deepseek-coder", "x1\n \u4E2D!"),
            (Pieces{"x", "1", "\n", " ", "\u4E2D", "!"}));
  EXPECT_EQ(pretokenize("qwen35", "e\u0301a"), (Pieces{"e\u0301a"}));
  // Falcon parts the bytes of U+00BD, because the last of them looks like a number.
  EXPECT_EQ(pretokenize("falcon", "12345 \u00BD?!"), (Pieces{"123", "45", " \xC2", "\xBD", "?!"}));
  EXPECT_EQ(pretokenize("gpt-2", ""), Pieces{});
}

}  // namespace
}  // namespace kvikk
