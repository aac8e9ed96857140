// The general engine for regular expressions, against PCRE2 and by hand.
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>

namespace kvikk {
namespace {

using Matches = std::vector<std::string>;

Matches find(const std::string& regex, const std::string& text) {
  const Result<Regex> compiled = Regex::compile(regex);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  Matches matches;
  if (!compiled.ok()) return matches;
  compiled->find_all(text, [&](size_t begin, size_t end) {
    matches.push_back(std::to_string(begin) + ":" + text.substr(begin, end - begin));
  });
  return matches;
}

// PCRE2's matches, an empty one right after a match left out as Oniguruma's callers do.
Matches find_by_pcre2(const std::string& regex, const std::string& text) {
  int error;
  PCRE2_SIZE error_offset;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &error_offset, nullptr),
      pcre2_code_free);
  EXPECT_NE(code, nullptr) << regex << " at " << error_offset;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
  Matches matches;
  size_t last_end = SIZE_MAX;
  for (size_t at = 0; at <= text.size();) {
    const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, 0, match.get(), nullptr);
    if (found < 0) break;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    if (bounds[1] > bounds[0] || bounds[1] != last_end) {
      matches.push_back(std::to_string(bounds[0]) + ":" +
                        text.substr(bounds[0], bounds[1] - bounds[0]));
      last_end = bounds[1];
    }
    at = bounds[1] > bounds[0] ? bounds[1] : bounds[1] + 1;
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
  }
  return matches;
}

TEST(RegexTest, AgreesWithPcre2) {
  const char* const regexes[] = {
      R"(a|ab|abc)",
      R"((?:a|ab)(?:c|bcd)?)",
      R"(a*?b)",
      R"((?:ab)+)",
      R"((?:a+b?)+c)",
      R"(x*)",
      R"(\b\w+\b)",
      R"((?=(\d{3})+(?!\d)))",
      R"(\d{1,3}(?=(?:\d{3})*\b))",
      R"((?<=a)b|(?<!a)b\s)",
      R"(^\s*|\s+$)",
      R"([^\s\d]+?\d)",
      R"(a{2,3}b{0,2})",
      R"(\p{L}\p{M}*(?: \p{L}\p{M}*)*)",
      R"((?i:th|HE)e?)",
      R"(a?+a|b++.)",
      R"((?:|a)b)",
      R"([[:space:]]+[[:digit:]])",
      R"(.+?\n)",
      R"(\x{E9}+|\x41)",
  };
  std::mt19937 random(3);
  const char* const parts[] = {"a",      "b",       "c",      "d",       "x",   " ",
                               "\n",     "1",       "123",    "1234567", "the", "E",
                               "\u00E9", "e\u0301", "\u4E2D", "\r\n",    "_"};
  for (const std::string regex : regexes) {
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (size_t n = random() % 12; n > 0; --n) text += parts[random() % std::size(parts)];
      // Marks are no word characters to PCRE2.
      const bool differs =
          regex.find("\\b") != std::string::npos && text.find("\u0301") != std::string::npos;
      if (!differs) {
        EXPECT_EQ(find(regex, text), find_by_pcre2(regex, text)) << regex;
      }
    }
  }
}

TEST(RegexTest, ByHand) {
  EXPECT_EQ(find(R"([\p{L}&&[^a-c]]+)", "abcde"), (Matches{"3:de"}));
  EXPECT_EQ(find(R"([\p{Han}]+)", "a\u4E2D\u6587\u3042"), (Matches{"1:\u4E2D\u6587"}));
  EXPECT_EQ(find(R"([a-d&&[^b]&&[^c]])", "abcd"), (Matches{"0:a", "3:d"}));
  EXPECT_EQ(find(R"((?i)straSSe)", "Stra\u017F\u017Fe"), (Matches{"0:Stra\u017F\u017Fe"}));
  EXPECT_EQ(find(R"(\u0041|\x42)", "AB"), (Matches{"0:A", "1:B"}));
  EXPECT_EQ(find(R"(\n$)", "a\n\nb"), (Matches{"1:\n"}));
  EXPECT_TRUE(find("a", "").empty());
  EXPECT_EQ(find("a*", ""), (Matches{"0:"}));
}

TEST(RegexTest, RefusesWithThePlace) {
  for (const std::string regex :
       {"",           "(",        ")",           "[",       "[a",
        "a{2,1}",     "a{0}",     "a{9999}",     "*a",      "(?>a)",
        "\\1",        "(a)\\1",   "\\k<a>",      "(?:a*)*", "(?:a|)+",
        "(?<=ab)c",   "(?:ab)++", "\\p{Nope}",   "\\p{L",   "[z-a]",
        "[[:nope:]]", "\\",       "\\x{110000}", "\xFF",    "(?:a{500}){3}"}) {
    const Result<Regex> compiled = Regex::compile(regex);
    EXPECT_FALSE(compiled.ok()) << regex;
    if (compiled.ok()) continue;
    EXPECT_EQ(compiled.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(compiled.status().message().find("regular expression '" + regex), std::string::npos);
  }
  EXPECT_FALSE(Regex::compile(std::string(200, '(')).ok());
  EXPECT_FALSE(Regex::compile(std::string(10'000, 'a')).ok());
}

// Expressions on which engines that try and give back need exponential or quadratic time.
TEST(RegexTest, LinearTime) {
  const std::string text(200'000, 'a');
  for (const char* regex : {"(?:a+)+b", "(?:a|a)*b", "a*a*a*a*b", "(?=a*b)a", "a+?$b"}) {
    EXPECT_TRUE(find(regex, text).empty()) << regex;
  }
  EXPECT_EQ(find("(?:a|aa)+", text).size(), 1u);
}

}  // namespace
}  // namespace kvikk
