#pragma once
// The arguments of one verb: its options, from the structs that declare them, its words, --config,
// --help. CLI11 takes the arguments apart; what they mean and what is said about wrong ones is
// decided here, so that flags and configuration files meet the same checks.

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "shell.h"
#include "text/option_entry.h"

namespace kvikk {

using Arguments = std::span<const char* const>;

struct CommandText {
  std::string verb;     // "eval kl"
  std::string words;    // "[PROMPT]"; may be empty
  std::string summary;  // a paragraph for --help
  std::vector<std::string> examples;
};

class Command {
 public:
  explicit Command(CommandText text) : text_(std::move(text)) {}

  // Adds the options that visit() declares. `common`: those that --help shows; empty: all.
  template <class Options>
  void add(Options& options, std::initializer_list<std::string_view> common = {}) {
    const size_t first = entries_.size();
    options.visit(OptionBinder(entries_));
    if (common.size() > 0) mark_common(first, common);
  }
  // A one-letter flag for an option, "-m" for "model".
  void add_short(std::string_view name, char letter) { shorts_.push_back({name, letter}); }
  // The words beside the options.
  void take_words(std::vector<std::string>& words, size_t min, size_t max) {
    words_ = &words;
    words_min_ = min;
    words_max_ = max;
  }

  // False: help was printed and there is nothing else to do. Errors: kInvalidArgument.
  Result<bool> parse(Shell& shell, Arguments arguments);

  // Whether an option was set by a flag or the configuration file.
  bool given(std::string_view name) const;

 private:
  struct Short {
    std::string_view name;
    char letter;
  };

  void mark_common(size_t first, std::initializer_list<std::string_view> common);
  Status apply_config(const std::string& path);
  Status parse_flags(Arguments arguments);
  Status take_rest(const std::vector<std::string>& rest);
  Status unknown_option(const std::string& argument) const;
  std::string names_of(const OptionEntry& entry) const;
  std::string help(bool all) const;
  std::string markdown() const;

  CommandText text_;
  std::vector<OptionEntry> entries_;
  std::vector<Short> shorts_;
  std::vector<std::string> given_;
  std::vector<std::string>* words_ = nullptr;
  size_t words_min_ = 0;
  size_t words_max_ = 0;
};

// Of `known`, the one that was probably meant; empty when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& known);

}  // namespace kvikk
