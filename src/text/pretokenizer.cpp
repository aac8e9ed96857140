// The stages that change a text before it is cut.
#include "text/pretokenizer.h"

#include <algorithm>

#include "text/byte_alphabet.h"
#include "text/char_class.h"

namespace kvikk {

Status Pretokenizer::add(Stage stage, size_t growth) {
  if (stages_.size() == kStagesMax) {
    return unsupported("a pre-tokenizer of more than " + std::to_string(kStagesMax) + " steps");
  }
  TRY(growth_.add(growth));
  stages_.push_back(std::move(stage));
  return ok_status();
}

Status Pretokenizer::add_split(TextPattern pattern, SplitBehavior behavior, bool invert) {
  Stage stage;
  stage.pattern = std::move(pattern);
  stage.behavior = behavior;
  stage.invert = invert;
  return add(std::move(stage), 1);
}

Status Pretokenizer::add_regex(std::string_view regex) {
  TRY_ASSIGN(TextPattern pattern, TextPattern::regex(regex));
  return add_split(std::move(pattern), SplitBehavior::kIsolated, false);
}

Status Pretokenizer::add_prefix_space() {
  Stage stage;
  stage.kind = Kind::kPrefixSpace;
  stage.cuts = false;
  return add(std::move(stage), 2);
}

Status Pretokenizer::add_metaspace(std::string_view mark, Prefix prefix, bool cuts) {
  Stage stage;
  stage.kind = Kind::kMetaspace;
  stage.mark = mark;
  stage.prefix = prefix;
  stage.cuts = cuts;
  stage.behavior = SplitBehavior::kMergedWithNext;
  TRY_ASSIGN(stage.pattern, TextPattern::literal(mark));
  return add(std::move(stage), mark.size() + 1);
}

Status Pretokenizer::add_bert() {
  TRY(add_split(TextPattern::characters(is_white_space), SplitBehavior::kRemoved, false));
  return add_split(TextPattern::characters(is_punctuation), SplitBehavior::kIsolated, false);
}

Status Pretokenizer::add_write_bytes() {
  Stage stage;
  stage.kind = Kind::kWriteBytes;
  stage.cuts = false;
  return add(std::move(stage), 2);
}

Status Pretokenizer::add_read_bytes() {
  Stage stage;
  stage.kind = Kind::kReadBytes;
  stage.cuts = false;
  return add(std::move(stage), 1);
}

bool Pretokenizer::writes_bytes() const {
  return std::any_of(stages_.begin(), stages_.end(),
                     [](const Stage& stage) { return stage.kind == Kind::kWriteBytes; });
}

Status Pretokenizer::restore_bytes() {
  if (stages_.empty() || stages_.back().kind != Kind::kWriteBytes) return add_read_bytes();
  stages_.pop_back();
  return ok_status();
}

std::string_view Pretokenizer::rewrite(const Stage& stage, std::string_view text, bool is_first,
                                       TextArena* arena) {
  switch (stage.kind) {
    case Kind::kSplit:
      break;
    case Kind::kPrefixSpace:
      return text.starts_with(' ') ? text : arena->keep(" " + std::string(text));
    case Kind::kWriteBytes:
      return arena->keep(write_bytes(text));
    case Kind::kReadBytes: {
      std::optional<std::string> bytes = read_bytes(text);
      return bytes.has_value() ? arena->keep(std::move(*bytes)) : text;
    }
    case Kind::kMetaspace: {
      const bool wants_mark =
          stage.prefix == Prefix::kAlways || (stage.prefix == Prefix::kFirst && is_first);
      std::string marked;
      marked.reserve(text.size() + text.size() / 2);
      if (wants_mark && !text.starts_with(' ') && !text.starts_with(stage.mark)) {
        marked = stage.mark;
      }
      for (const char c : text) {
        if (c == ' ') {
          marked += stage.mark;
        } else {
          marked += c;
        }
      }
      return arena->keep(std::move(marked));
    }
  }
  return text;
}

}  // namespace kvikk
