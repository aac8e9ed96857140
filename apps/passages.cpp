#include "passages.h"

#include <algorithm>
#include <filesystem>

#include "text/utf8.h"

namespace kvikk {
namespace {

namespace fs = std::filesystem;

Status not_read(const std::string& path, const std::error_code& error) {
  const bool missing = error == std::errc::no_such_file_or_directory;
  const std::string message = path + ": cannot be read: " + error.message();
  return missing ? not_found(message) : io_error(message);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\f\v") == std::string_view::npos;
}

// A line, or a part of one that is too long.
struct Piece {
  std::string_view text;
  uint64_t line = 0;
  size_t tokens = 0;
};

// Where to cut a text into about two halves: behind a space, else between two characters.
size_t middle_of(std::string_view text) {
  const size_t half = text.size() / 2;
  const size_t space = text.find_last_of(" \t", half);
  if (space != std::string_view::npos && space >= text.size() / 4) return space + 1;
  for (size_t at = half; at > 0; --at) {
    if (!is_utf8_continuation(text[at])) return at;
  }
  return half;
}

// Halves halve again until they fit: no deeper than the line's length has bits.
void add_pieces(std::string_view text, uint64_t line, size_t tokens_max, const CountTokens& count,
                std::vector<Piece>& out) {
  const size_t tokens = count(text);
  if (tokens <= tokens_max || text.size() < 2) {
    out.push_back({text, line, tokens});
    return;
  }
  const size_t middle = middle_of(text);
  add_pieces(text.substr(0, middle), line, tokens_max, count, out);
  add_pieces(text.substr(middle), line, tokens_max, count, out);
}

}  // namespace

Result<std::vector<std::string>> list_text_files(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_regular_file(status)) return std::vector<std::string>{path};
  fs::recursive_directory_iterator at(path, error);
  if (error) return not_read(path, error);
  std::vector<std::string> files;
  for (; at != fs::recursive_directory_iterator(); at.increment(error)) {
    const fs::path entry = at->path();
    const bool hidden = entry.filename().native().front() == '.';
    if (hidden && at->is_directory(error)) at.disable_recursion_pending();
    if (hidden || !at->is_regular_file(error)) continue;
    if (files.size() == kTextFilesMax) {
      return exhausted(path + ": has more than " + std::to_string(kTextFilesMax) + " files");
    }
    files.push_back(entry.string());
  }
  if (error) return not_read(path, error);
  std::sort(files.begin(), files.end());
  return files;
}

bool is_text(std::string_view content) {
  return content.find('\0') == std::string_view::npos && is_valid_utf8(content);
}

void cut_text(std::string_view text, const std::string& file, size_t tokens_max,
              const CountTokens& count, std::vector<Passage>& out) {
  std::vector<Piece> pieces;
  uint64_t line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    add_pieces(text.substr(begin, end - begin), ++line, tokens_max, count, pieces);
    begin = end + 1;
  }
  Passage passage;
  size_t tokens = 0;
  const auto close = [&] {
    if (!passage.text.empty()) {
      passage.file = file;
      out.push_back(std::move(passage));
    }
    passage = {};
    tokens = 0;
  };
  for (const Piece& piece : pieces) {
    if (is_blank(piece.text)) {  // the end of a paragraph: a good place to cut
      if (tokens >= tokens_max / 2) close();
      continue;
    }
    if (tokens + piece.tokens > tokens_max) close();
    if (passage.text.empty()) passage.first_line = piece.line;
    // Parts of one line go on where the one before ended; lines that were apart stay so.
    const uint64_t lines = passage.text.empty() ? 0 : piece.line - passage.last_line;
    passage.text.append(std::min<uint64_t>(lines, 2), '\n').append(piece.text);
    passage.last_line = piece.line;
    tokens += piece.tokens;
  }
  close();
}

}  // namespace kvikk
