#pragma once
// What a step of a published pipeline looks for in a text: a literal string or a regular
// expression. Of the two engines for expressions the fast one is taken where it can.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/regex.h"
#include "text/split_pattern.h"

namespace kvikk {

class TextPattern {
 public:
  static constexpr size_t kLiteralBytesMax = 256;  // bounds the time of a search

  // kUnsupported, with the place, where neither engine knows the expression.
  static Result<TextPattern> regex(std::string_view regex);
  // Not empty, at most kLiteralBytesMax.
  static Result<TextPattern> literal(std::string_view text);

  // Every character for which `is_match` holds, each a match of its own.
  using Predicate = bool (*)(char32_t);
  static TextPattern characters(Predicate is_match);

  // What a match has at least; 0 where that is not known.
  size_t match_bytes() const { return is_match_ != nullptr ? 1 : literal_.size(); }

  // emit(string_view, bool is_match) gets matches and what lies between them, in order. A match can
  // be empty.
  template <class Emit>
  void split(std::string_view text, Emit&& emit) const {
    if (fast_.has_value()) return fast_->split(text, emit);
    size_t gap = 0;
    const auto found = [&](size_t begin, size_t end) {
      if (gap < begin) emit(text.substr(gap, begin - gap), false);
      emit(text.substr(begin, end - begin), true);
      gap = end;
    };
    if (is_match_ != nullptr) {
      for (size_t at = 0; at < text.size();) {
        const DecodedChar c = decode_valid_utf8(text.data() + at);
        if (is_match_(c.code_point)) found(at, at + c.bytes);
        at += c.bytes;
      }
    } else if (general_ != nullptr) {
      general_->find_all(text, found);
    } else {
      for (size_t at = text.find(literal_); at != std::string_view::npos;) {
        found(at, at + literal_.size());
        at = text.find(literal_, at + literal_.size());
      }
    }
    if (gap < text.size()) emit(text.substr(gap), false);
  }

  // `text` with `replacement` for every match.
  std::string replace(std::string_view text, std::string_view replacement) const;

 private:
  std::optional<SplitPattern> fast_;
  std::shared_ptr<const Regex> general_;
  std::string literal_;
  Predicate is_match_ = nullptr;
};

}  // namespace kvikk
