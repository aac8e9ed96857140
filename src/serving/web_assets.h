#pragma once
// The chat page's files (web/, and the libraries it uses), which cmake/embed.cmake puts into the
// program.

#include <cstddef>
#include <span>

namespace kvikk {

struct WebAsset {
  const char* path;  // "/app.js"
  const char* content_type;
  const unsigned char* bytes;
  size_t size;
};

std::span<const WebAsset> web_assets();

}  // namespace kvikk
