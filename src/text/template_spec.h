#pragma once
// One value as text by a format specification: what "%8.3f" and "{:>8.3f}" have in common.

#include <cstdint>
#include <string>
#include <string_view>

#include "text/template_ops.h"

namespace kvikk::jinja {

// The parts that both kinds of patterns have.
struct Spec {
  std::string_view fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // + - or a space
  bool alternate = false;
  bool comma = false;
  bool underscore = false;
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

int checked_precision(int64_t precision);
std::string_view sign_of(bool negative, const Spec& spec);
std::string digits_in_base(Int value, int base, bool upper);     // without a sign
std::string first_characters(std::string_view text, int count);  // all where count < 0
// Fills up to the width; `default_align` where the specification has none.
void append_padded(Text& out, std::string_view sign, std::string_view body, const Spec& spec,
                   char default_align);
void format_real(Text& out, double value, const Spec& spec);
void format_int(Text& out, Int value, const Spec& spec);

}  // namespace kvikk::jinja
