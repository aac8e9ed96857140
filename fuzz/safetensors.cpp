// Any bytes as a safetensors file: the header and everything behind it must end in a Status or in
// values, and never look outside of the bytes.

#include "weights/safetensors.h"

#include "../tests/weights/safetensors_walk.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto folder = kvikk::SafetensorsFolder::parse("input.safetensors", {data, size});
  if (folder.ok()) CHECK(kvikk::walk_safetensors(*folder) > 0);
  return 0;
}
