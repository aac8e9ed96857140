#pragma once
// How each published byte-level vocabulary cuts text before its merges: a normalisation, then
// stages of regular expressions, each applied to the pieces that the one before left.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/split_pattern.h"

namespace kvikk {

class Pretokenizer {
 public:
  // `name` is what GGUF calls tokenizer.ggml.pre. An unknown name is kUnsupported, with the list.
  static Result<Pretokenizer> create(std::string_view name);

  bool normalizes_nfc() const { return nfc_; }
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool ignores_merges() const { return ignore_merges_; }
  // What holds where the file does not say whether texts begin with BOS.
  bool adds_bos() const { return add_bos_; }

  // emit(string_view) gets the pieces of `text` (well-formed UTF-8) in order.
  template <class Emit>
  void split(std::string_view text, Emit&& emit) const {
    if (!text.empty()) split_from(0, text, emit);
  }

 private:
  template <class Emit>
  void split_from(size_t stage, std::string_view text, Emit& emit) const {
    if (stage == stages_.size()) {
      if (byte_digits_) {
        split_byte_digits(text, emit);
      } else {
        emit(text);
      }
      return;
    }
    stages_[stage].split(text, [&](std::string_view piece) { split_from(stage + 1, piece, emit); });
  }

  // Falcon's last two steps look for digits after text became GPT-2's byte characters, among which
  // some parts of other characters are numbers too. First runs of these are set apart, then every
  // three ASCII digits. Pieces may be parts of characters.
  template <class Emit>
  static void split_byte_digits(std::string_view text, Emit& emit) {
    const auto cut = [&](size_t begin, size_t end) {
      if (begin < end) emit(text.substr(begin, end - begin));
    };
    size_t begin = 0;
    size_t ascii_digits = 0;  // in a row, up to `at`, since the last cut
    for (size_t at = 0; at < text.size(); ++at) {
      const bool starts_run = at > begin && is_byte_digit(text[at]) != is_byte_digit(text[at - 1]);
      if (starts_run) {
        cut(begin, at);
        begin = at;
        ascii_digits = 0;
      }
      ascii_digits = text[at] >= '0' && text[at] <= '9' ? ascii_digits + 1 : 0;
      if (ascii_digits < 3) continue;
      cut(begin, at - 2);
      cut(at - 2, at + 1);
      begin = at + 1;
      ascii_digits = 0;
    }
    cut(begin, text.size());
  }
  static bool is_byte_digit(char byte);

  std::vector<SplitPattern> stages_;
  bool byte_digits_ = false;
  bool nfc_ = false;
  bool ignore_merges_ = false;
  bool add_bos_ = false;
};

// Every name that Pretokenizer::create knows, in the registry's order.
std::vector<std::string_view> pretokenizer_names();

}  // namespace kvikk
