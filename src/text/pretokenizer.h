#pragma once
// How text is cut into the pieces that a token model sees: stages, each applied to the pieces that
// the one before left. The stages are those of a published tokenizer.json; GGUF files name whole
// pipelines (pretokenizer_names.cpp).

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/growth_limit.h"
#include "text/text_arena.h"
#include "text/text_pattern.h"

namespace kvikk {

// What becomes of the matches of a pattern, as the reference library names it.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

class Pretokenizer {
 public:
  static constexpr size_t kStagesMax = 32;    // bounds the recursion of a split
  static constexpr size_t kGrowthMax = 4096;  // over all stages

  enum class Prefix { kNever, kFirst, kAlways };  // the mark before a text

  // How the pipeline that GGUF calls `name` (tokenizer.ggml.pre) cuts text. An unknown name is
  // kUnsupported, with the list.
  static Result<Pretokenizer> create(std::string_view name);

  // Stages. kUnsupported past kStagesMax and kGrowthMax.
  Status add_split(TextPattern pattern, SplitBehavior behavior, bool invert);
  // Matches isolated. kUnsupported where the expression is not known.
  Status add_regex(std::string_view regex);
  // A space before each piece that begins with none.
  Status add_prefix_space();
  // `mark` for each space and, as `prefix` says, before the piece; then a cut before each mark
  // where `cuts` is set.
  Status add_metaspace(std::string_view mark, Prefix prefix, bool cuts);
  // BERT's: cut at white space, which goes, and around every punctuation mark.
  Status add_bert();
  // Bytes written as characters (byte_alphabet.h), and back.
  Status add_write_bytes();
  Status add_read_bytes();

  // Whether bytes are written as characters, and makes pieces come out as bytes all the same.
  bool writes_bytes() const;
  Status restore_bytes();

  bool empty() const { return stages_.empty(); }

  // emit(string_view) gets the pieces of `text` (well-formed UTF-8) in order; none is empty.
  // `is_first` says that `text` is the begin of the whole. Pieces that are no part of `text` are in
  // `arena`.
  template <class Emit>
  void split(std::string_view text, bool is_first, TextArena* arena, Emit&& emit) const {
    split_from(0, text, is_first, arena, emit);
  }

 private:
  enum class Kind { kSplit, kPrefixSpace, kMetaspace, kWriteBytes, kReadBytes };
  struct Stage {
    Kind kind = Kind::kSplit;
    bool cuts = true;  // there is a pattern
    TextPattern pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    std::string mark;
    Prefix prefix = Prefix::kNever;
  };

  // `growth`: how many times its bytes the stage can make of a text.
  Status add(Stage stage, size_t growth);
  static std::string_view rewrite(const Stage& stage, std::string_view text, bool is_first,
                                  TextArena* arena);

  template <class Emit>
  void split_from(size_t index, std::string_view text, bool is_first, TextArena* arena,
                  Emit& emit) const {
    if (text.empty()) return;
    if (index == stages_.size()) {
      emit(text);
      return;
    }
    const Stage& stage = stages_[index];
    if (stage.kind != Kind::kSplit) text = rewrite(stage, text, is_first, arena);
    const auto go_on = [&](std::string_view piece) {
      split_from(index + 1, piece, is_first && piece.data() == text.data(), arena, emit);
    };
    if (!stage.cuts) {
      go_on(text);
    } else if (stage.behavior == SplitBehavior::kIsolated) {
      stage.pattern.split(text, [&](std::string_view piece, bool) { go_on(piece); });
    } else {
      split_merged(stage, text, go_on);
    }
  }

  template <class GoOn>
  static void split_merged(const Stage& stage, std::string_view text, GoOn& go_on) {
    std::string_view held;  // the last piece, which may still grow
    bool held_is_match = false;
    const auto grows = [&](bool is_match) {
      if (held.data() == nullptr) return false;
      switch (stage.behavior) {
        case SplitBehavior::kContiguous:
          return is_match == held_is_match;
        case SplitBehavior::kMergedWithPrevious:
          return is_match && !held_is_match;
        case SplitBehavior::kMergedWithNext:
          return !is_match && held_is_match;
        default:
          return false;
      }
    };
    stage.pattern.split(text, [&](std::string_view piece, bool matches) {
      const bool is_match = matches != stage.invert;
      if (is_match && stage.behavior == SplitBehavior::kRemoved) return;
      if (grows(is_match)) {
        held = {held.data(), static_cast<size_t>(piece.data() + piece.size() - held.data())};
      } else {
        go_on(held);
        held = piece;
      }
      held_is_match = is_match;
    });
    go_on(held);
  }

  std::vector<Stage> stages_;
  GrowthLimit growth_{kGrowthMax};
};

// What else a pipeline that GGUF names does; none of it is in the file.
struct NamedPipeline {
  bool nfc = false;
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignore_merges = false;
  // What holds where the file does not say whether texts begin with BOS.
  bool add_bos = false;
};
NamedPipeline named_pipeline(std::string_view name);

// Every name that Pretokenizer::create knows, in the registry's order.
std::vector<std::string_view> pretokenizer_names();
// One name for each different pipeline.
std::vector<std::string_view> pretokenizer_kinds();

}  // namespace kvikk
