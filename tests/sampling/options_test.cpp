// One declaration per option: the range check and the table in docs/sampling.md both follow it.

#include "kvikk/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <type_traits>

#include "base/status.h"

namespace kvikk {
namespace {

constexpr size_t kVocabulary = 100;

void expect_refused(const SamplingOptions& o, const std::string& name, const std::string& detail) {
  const Status status = validate(o, kVocabulary);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << " " << detail;
  EXPECT_NE(status.message().find("'" + name + "'"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(detail), std::string::npos) << status.message();
}

// Calls act(name, value setter, min, max) for each number.
template <class Act>
void for_each_number(SamplingOptions& o, Act act) {
  o.visit([&](auto& field, const char* name, auto min, auto max, const char*) {
    using T = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) act(field, name, min, max);
  });
}

TEST(Options, DefaultsAndBoundsAreValid) {
  SamplingOptions o;
  EXPECT_TRUE(validate(o, kVocabulary).ok());
  for_each_number(o, [&](auto& field, const char* name, auto min, auto max) {
    const auto keep = field;
    using T = std::remove_reference_t<decltype(field)>;
    for (const auto bound : {min, max}) {
      field = static_cast<T>(bound);
      // 0.01 as a float is a little below 0.01.
      if (std::is_floating_point_v<T> && field < bound) {
        field = std::nextafter(field, std::numeric_limits<T>::max());
      }
      EXPECT_TRUE(validate(o, kVocabulary).ok())
          << name << ": " << validate(o, kVocabulary).message();
    }
    field = keep;
  });
}

TEST(Options, EachNumberIsRefusedBeyondItsRange) {
  SamplingOptions o;
  for_each_number(o, [&](auto& field, const char* name, auto min, auto max) {
    const auto keep = field;
    using T = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_floating_point_v<T>) {
      for (const T bad :
           {static_cast<T>(NAN), static_cast<T>(INFINITY), static_cast<T>(-INFINITY),
            static_cast<T>(min - 0.02), std::nextafter(static_cast<T>(max), INFINITY)}) {
        field = bad;
        expect_refused(o, name, "it must be between");
      }
    } else {
      field = static_cast<T>(min - 1);
      expect_refused(o, name, "it must be between " + std::to_string(min));
      if (max < std::numeric_limits<T>::max()) {
        field = static_cast<T>(max + 1);
        expect_refused(o, name, " and " + std::to_string(max));
      }
    }
    field = keep;
  });
}

TEST(Options, MessagesNameValueAndRange) {
  SamplingOptions o;
  o.top_p = 1.5f;
  EXPECT_EQ(validate(o, kVocabulary).message(),
            "sampling option 'top_p' is 1.5; it must be between 0 and 1");
  o.top_p = NAN;
  EXPECT_EQ(validate(o, kVocabulary).message(),
            "sampling option 'top_p' is nan; it must be between 0 and 1");
}

TEST(Options, LogitBias) {
  SamplingOptions o;
  o.logit_bias = {{0, -1000}, {99, 1000}};
  EXPECT_TRUE(validate(o, kVocabulary).ok());
  o.logit_bias = {{100, 1}};
  expect_refused(o, "logit_bias", "names token 100; the model's tokens are 0 to 99");
  o.logit_bias = {{-1, 1}};
  expect_refused(o, "logit_bias", "names token -1");
  o.logit_bias = {{5, NAN}};
  expect_refused(o, "logit_bias", "is nan for token 5");
  o.logit_bias = {{5, 1001}};
  expect_refused(o, "logit_bias", "is 1001 for token 5; it must be between -1000 and 1000");
  o.logit_bias.assign(kLogitBiasEntriesMax + 1, {1, 1});
  expect_refused(o, "logit_bias", "at most 4096");
}

TEST(Options, DryBreakers) {
  SamplingOptions o;
  o.dry_sequence_breakers = {};
  EXPECT_TRUE(validate(o, kVocabulary).ok());
  o.dry_sequence_breakers = {""};
  expect_refused(o, "dry_sequence_breakers", "a text of 0 bytes");
  o.dry_sequence_breakers = {std::string(kDryBreakerBytesMax + 1, 'x')};
  expect_refused(o, "dry_sequence_breakers", "a text of 65 bytes; each must have 1 to 64");
  o.dry_sequence_breakers.assign(kDryBreakersMax + 1, "x");
  expect_refused(o, "dry_sequence_breakers", "at most 64");
}

// --- The table in docs/sampling.md.

template <class T>
std::string text_of(const T& value) {
  char text[32];
  if constexpr (std::is_floating_point_v<T>) {
    std::snprintf(text, sizeof(text), "%.7g", static_cast<double>(value));
  } else {
    std::snprintf(text, sizeof(text), "%lld", static_cast<long long>(value));
  }
  return text;
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(const std::vector<LogitBias>&) { return "none"; }

std::string text_of(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& entry : list) {
    text += (text.empty() ? "`" : " `") + (entry == "\n" ? std::string("\\n") : entry) + "`";
  }
  return text;
}

TEST(Options, TheDocumentHasEachOptionAsItIsDeclared) {
  const std::string path = std::string(KVIKK_TEST_DATA) + "/../../docs/sampling.md";
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::stringstream document;
  document << file.rdbuf();
  SamplingOptions{}.visit(
      [&](const auto& field, const char* name, auto min, auto max, const char* help) {
        const std::string row = "| `" + std::string(name) + "` | " + text_of(field) + " | " +
                                text_of(min) + " to " + text_of(max) + " | " + help + " |\n";
        EXPECT_NE(document.str().find(row), std::string::npos) << "docs/sampling.md lacks\n" << row;
      });
}

}  // namespace
}  // namespace kvikk
