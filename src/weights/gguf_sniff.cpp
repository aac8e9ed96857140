// A file that is not GGUF: says what it seems to be, because the usual causes (an error page saved
// as a model, a pointer instead of the file, another format) each have their own remedy.

#include <algorithm>
#include <cstring>

#include "weights/gguf_parser.h"

namespace kvikk::gguf {
namespace {

struct Signature {
  std::string_view bytes;
  const char* what;
};

constexpr Signature kSignatures[] = {
    {std::string_view("PK\x03\x04", 4), "a zip archive (perhaps a PyTorch checkpoint)"},
    {std::string_view("\x1F\x8B", 2), "a gzip archive: unpack it first"},
    {std::string_view("\xFD"
                      "7zXZ",
                      5),
     "an xz archive: unpack it first"},
    {std::string_view("\x28\xB5\x2F\xFD", 4), "a zstd archive: unpack it first"},
    {std::string_view("7z\xBC\xAF", 4), "a 7z archive: unpack it first"},
    {std::string_view("\x80\x02", 2), "a Python pickle"},
    {std::string_view("\x7F"
                      "ELF",
                      4),
     "a program"},
    {std::string_view("lmgg", 4), "a ggml file from before GGUF: convert the model again"},
    {std::string_view("fmgg", 4), "a ggml file from before GGUF: convert the model again"},
    {std::string_view("tjgg", 4), "a ggml file from before GGUF: convert the model again"},
    {std::string_view("algg", 4), "a ggml adapter from before GGUF: convert it again"},
    {"version https://git-lfs", "a Git LFS pointer: fetch the file itself with 'git lfs pull'"},
    {"{", "a JSON file"},
};

bool looks_like_html(std::string_view text) {
  std::string start(text.substr(0, 256));
  std::transform(start.begin(), start.end(), start.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  const size_t first = start.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  return start.compare(first, 9, "<!doctype") == 0 || start.compare(first, 5, "<html") == 0 ||
         start.compare(first, 5, "<?xml") == 0;
}

std::string describe(std::string_view text) {
  const std::string_view start = text.substr(0, 4096);
  if (start.find_first_not_of('\0') == std::string_view::npos) {
    return "starts with zeros only, as an interrupted download does: fetch it again";
  }
  if (looks_like_html(text)) {
    return "looks like a web page: the download brought an error or login page instead of the "
           "model";
  }
  // A safetensors file is a header length as u64, then the header, which is JSON.
  if (text.size() > 9 && text[8] == '{' && std::memchr(text.data() + 4, 0, 4) != nullptr) {
    return "looks like a safetensors file: give the folder that holds it and config.json";
  }
  for (const Signature& signature : kSignatures) {
    if (text.substr(0, signature.bytes.size()) == signature.bytes) {
      return std::string("looks like ") + signature.what;
    }
  }
  const bool printable = std::all_of(start.begin(), start.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
  if (printable) return "looks like a text file";
  return "begins with " + quoted(text.substr(0, 4));
}

}  // namespace

Status not_gguf(const std::string& path, std::span<const uint8_t> bytes) {
  if (bytes.empty())
    return damaged(path + ": is empty: the download did not start; fetch it again");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 4 && std::string_view("GGUF").substr(0, text.size()) == text) {
    return damaged(path + ": ends after " + grouped(text.size()) +
                   " bytes: the download is incomplete; fetch it again");
  }
  if (text.substr(0, 4) == "FUGG") {
    return unsupported(path + ": is a byte-swapped GGUF file; only little-endian ones can be read");
  }
  return unsupported(path + ": is not a GGUF file (those begin with \"GGUF\"); it " +
                     describe(text));
}

}  // namespace kvikk::gguf
