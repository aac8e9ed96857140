// Both directions are tables that the compiler makes.
#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace kvikk {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 0x144> byte_of{};  // -1: none
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte_of) byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = stands_for_itself(byte) ? byte : next++;
    alphabet.of_byte[byte] = c;
    alphabet.byte_of[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_character(unsigned char byte) { return kAlphabet.of_byte[byte]; }

std::string write_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char c : text) append_utf8(out, byte_character(static_cast<unsigned char>(c)));
  return out;
}

std::optional<std::string> read_bytes(std::string_view written) {
  std::string bytes;
  bytes.reserve(written.size());
  const char* const end = written.data() + written.size();
  for (const char* p = written.data(); p < end;) {
    const DecodedChar c = decode_utf8(p, end);
    const bool known =
        c.valid && c.code_point < kAlphabet.byte_of.size() && kAlphabet.byte_of[c.code_point] >= 0;
    if (!known) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[c.code_point]));
    p += c.bytes;
  }
  return bytes;
}

}  // namespace kvikk
