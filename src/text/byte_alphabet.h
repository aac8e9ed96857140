#pragma once
// GPT-2's way to write bytes as printable characters: printable Latin-1 characters stand for
// themselves, and the other 68 bytes, in order, for U+0100 and up.

#include <optional>
#include <string>
#include <string_view>

namespace kvikk {

// The character that stands for `byte`.
char32_t byte_character(unsigned char byte);
// Every byte of `text` as its character, in UTF-8.
std::string write_bytes(std::string_view text);
// The bytes that the characters of `written` stand for; nothing where one stands for none.
std::optional<std::string> read_bytes(std::string_view written);

}  // namespace kvikk
