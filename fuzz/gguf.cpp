// Any bytes as a GGUF file: parsing and reading everything must end in a Status or in values, and
// never look outside of the bytes.

#include "weights/gguf.h"

#include "../tests/weights/gguf_walk.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = kvikk::GgufFile::parse("input.gguf", {data, size});
  if (file.ok()) CHECK(kvikk::walk_gguf(*file) > 0);
  return 0;
}
