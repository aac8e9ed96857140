// UTF-8 and normalisation form C, against utf8proc.
#include "text/utf8.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "text/unicode_form.h"

namespace kvikk {
namespace {

TEST(Utf8Test, EveryScalarValueSurvives) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(bytes, c);
    ASSERT_TRUE(is_valid_utf8(bytes));
    const DecodedChar decoded = decode_utf8(bytes.data(), bytes.data() + bytes.size());
    ASSERT_TRUE(decoded.valid);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.bytes, bytes.size());
    ASSERT_EQ(decode_valid_utf8(bytes.data()).code_point, c);
    for (size_t n = 1; n < bytes.size(); ++n) {
      ASSERT_FALSE(is_valid_utf8(bytes.substr(0, n)));
      ASSERT_EQ(incomplete_utf8_tail("x" + bytes.substr(0, n)), n);
    }
    ASSERT_EQ(incomplete_utf8_tail(bytes), 0u);
  }
}

TEST(Utf8Test, EachMaximalSubpartBecomesOneReplacement) {
  const auto fixed = [](std::string_view bytes) { return replace_invalid_utf8(bytes); };
  EXPECT_EQ(fixed("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(fixed("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(fixed("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(fixed("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(fixed("\xF0\x9F\x98"), "\uFFFD");              // cut
  EXPECT_EQ(fixed("\xF0\x9F\x98x"), "\uFFFDx");
  EXPECT_EQ(fixed("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(fixed("\xFF\xFE"), "\uFFFD\uFFFD");
  EXPECT_EQ(fixed(std::string("\0x", 2)), std::string("\0x", 2));
  EXPECT_EQ(incomplete_utf8_tail("\xFF"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xE0\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80\x80\x80"), 0u);
}

std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out, options);
  EXPECT_GE(size, 0);
  std::string result(reinterpret_cast<char*>(out), static_cast<size_t>(size));
  std::free(out);
  return result;
}

TEST(NfcTest, AgreesWithUtf8proc) {
  const char32_t parts[] = {'a',    'e',    ' ',     0xE9,    0x301,   0x323,   0x308,
                            0x334,  0x345,  0x1100,  0x1161,  0x11A8,  0xAC00,  0xAC01,
                            0x212B, 0x2126, 0x0958,  0x09C7,  0x09BE,  0x0B92,  0x0BD7,
                            0x1025, 0x102E, 0x1EA1,  0x3042,  0x3099,  0xFB1D,  0xFB2A,
                            0x2ADC, 0x4E2D, 0x1D15E, 0x110A5, 0x110BA, 0x10FFFF};
  std::mt19937 random(17);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t n = random() % 10; n > 0; --n)
      append_utf8(text, parts[random() % std::size(parts)]);
    ASSERT_EQ(normalize_unicode(text, UnicodeForm::kNfc), reference_nfc(text)) << text;
    ASSERT_TRUE(!is_surely_normalized(text, UnicodeForm::kNfc) ||
                normalize_unicode(text, UnicodeForm::kNfc) == text)
        << text;
  }
}

TEST(NfcTest, EveryCharacter) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, c);
    ASSERT_EQ(normalize_unicode(text, UnicodeForm::kNfc), reference_nfc(text))
        << static_cast<uint32_t>(c);
  }
}

TEST(NfcTest, MarksThatTheReferenceLibraryDoesNotKnowStay) {
  // U+1AC6 (Unicode 14, class 230) and U+08F2 (class 220) would change places.
  EXPECT_EQ(normalize_unicode("\u1AC6\u08F2", UnicodeForm::kNfc), "\u1AC6\u08F2");
  EXPECT_EQ(normalize_unicode("a\u0301\u0323", UnicodeForm::kNfc), "\u1EA1\u0301");
}

TEST(NfcTest, ManyMarksOnOneLetterAreLinear) {
  std::string text = "e";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_EQ(normalize_unicode(text, UnicodeForm::kNfc).substr(0, 3), "\u1EB9");
}

}  // namespace
}  // namespace kvikk
