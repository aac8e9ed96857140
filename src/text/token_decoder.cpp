// A first token that comes out differently is decoded again when it comes; all others are decoded
// once, when the tokenizer is made.
#include "text/token_decoder.h"

#include <algorithm>
#include <optional>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace kvikk {
namespace {

// The byte of "<0x0A>", in either case.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const char lower = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return static_cast<char>(value);
}

// What WordPiece's decoder does to spaces before punctuation within a token.
void clean_up(std::string* text) {
  constexpr std::string_view kPairs[][2] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kPairs) {
    for (size_t at = text->find(from); at != std::string::npos; at = text->find(from, at)) {
      text->replace(at, from.size(), to);
      at += to.size();
    }
  }
}

std::string strip(std::string_view token, char32_t content, size_t start, size_t stop) {
  std::string character;
  append_utf8(character, content);
  for (size_t i = 0; i < start && token.starts_with(character); ++i) {
    token.remove_prefix(character.size());
  }
  for (size_t i = 0; i < stop && token.ends_with(character); ++i) {
    token.remove_suffix(character.size());
  }
  return std::string(token);
}

}  // namespace

Status TokenDecoder::add(Step step) {
  if (fused_) return unsupported("a step after Fuse or ByteLevel that is not Strip");
  if (steps_.size() == kStepsMax) {
    return unsupported("a decoder of more than " + std::to_string(kStepsMax) + " steps");
  }
  steps_.push_back(std::move(step));
  return ok_status();
}

Status TokenDecoder::add_replace(TextPattern pattern, std::string_view replacement) {
  TRY(growth_.add_replacement(pattern.match_bytes(), replacement.size()));
  Step step;
  step.pattern = std::move(pattern);
  step.text = replacement;
  return add(std::move(step));
}

Status TokenDecoder::add_byte_fallback() {
  Step step;
  step.kind = Kind::kByteFallback;
  return add(std::move(step));
}

Status TokenDecoder::add_byte_level() {
  Step step;
  step.kind = Kind::kByteLevel;
  TRY(add(std::move(step)));
  fused_ = true;
  return ok_status();
}

Status TokenDecoder::add_metaspace(std::string_view mark, bool drop_first) {
  Step step;
  step.kind = Kind::kMetaspace;
  TRY_ASSIGN(step.pattern, TextPattern::literal(mark));
  step.flag = drop_first;
  return add(std::move(step));
}

Status TokenDecoder::add_wordpiece(std::string_view prefix, bool cleanup) {
  Step step;
  step.kind = Kind::kWordPiece;
  step.text = prefix;
  step.flag = cleanup;
  return add(std::move(step));
}

Status TokenDecoder::add_strip(char32_t content, size_t start, size_t stop) {
  if (!fused_) {
    Step step;
    step.kind = Kind::kStrip;
    step.content = content;
    step.start = start;
    step.stop = stop;
    return add(std::move(step));
  }
  if (stop != 0 || start > 1 || drops_first_) {
    return unsupported("Strip of a whole text, other than of one character at its begin");
  }
  drops_first_ = start == 1;
  first_character_ = content;
  return ok_status();
}

Status TokenDecoder::add_fuse() {
  fused_ = true;
  return ok_status();
}

Status TokenDecoder::add_spaces_between() {
  Step step;
  step.kind = Kind::kSpaces;
  return add(std::move(step));
}

std::string TokenDecoder::apply(const Step& step, std::string token, bool is_first) {
  switch (step.kind) {
    case Kind::kReplace:
      return step.pattern.replace(token, step.text);
    case Kind::kByteFallback: {
      const std::optional<char> byte = byte_of(token);
      return byte.has_value() ? std::string(1, *byte) : token;
    }
    case Kind::kByteLevel:
      return read_bytes(token).value_or(token);
    case Kind::kMetaspace:
      return step.pattern.replace(token, is_first && step.flag ? "" : " ");
    case Kind::kWordPiece:
      if (!is_first) {
        if (token.starts_with(step.text)) {
          token.erase(0, step.text.size());
        } else {
          token.insert(0, " ");
        }
      }
      if (step.flag) clean_up(&token);
      return token;
    case Kind::kStrip:
      return strip(token, step.content, step.start, step.stop);
    case Kind::kSpaces:
      return is_first ? token : " " + token;
  }
  return token;
}

std::string TokenDecoder::decode(std::string_view written, bool is_first) const {
  std::string token(written);
  for (const Step& step : steps_) token = apply(step, std::move(token), is_first);
  return token;
}

bool TokenDecoder::depends_on_first() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.kind == Kind::kWordPiece || step.kind == Kind::kSpaces ||
           (step.kind == Kind::kMetaspace && step.flag);
  });
}

}  // namespace kvikk
