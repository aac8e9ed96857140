#pragma once
// Texts of a folder as passages: pieces of some lines that a model makes one vector of, which know
// where they come from.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "shell.h"

namespace kvikk {

struct Passage {
  std::string file;  // inside the folder
  uint64_t first_line = 0;
  uint64_t last_line = 0;
  std::string text;
};

// The regular files of a folder that are not hidden, in order of their names; of a file itself, the
// file. Errors: kNotFound, kIo, kExhausted (more than kTextFilesMax).
inline constexpr size_t kTextFilesMax = size_t{1} << 20;
Result<std::vector<std::string>> list_text_files(const std::string& path);

// Whether a file's content is text: UTF-8 without NUL.
bool is_text(std::string_view content);

using CountTokens = std::function<size_t(std::string_view)>;

// Cuts a text at line ends into passages of at most `tokens_max` tokens, rather between paragraphs
// than inside one, and a line that is longer at a space.
void cut_text(std::string_view text, const std::string& file, size_t tokens_max,
              const CountTokens& count, std::vector<Passage>& out);

}  // namespace kvikk
