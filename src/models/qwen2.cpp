// Qwen 2 and 2.5: Llama's equations with biases on q, k and v, and rotation of dimension i with i +
// d / 2. The biases on k are huge (hundreds) in some layers, so keys lose more to rounding than
// elsewhere.

#include "models/registry.h"

namespace kvikk {

namespace {

Result<ModelConfig> read_config(const GgufFile& file) { return read_common_config(file, "qwen2"); }

}  // namespace

extern const ModelDef kQwen2;
const ModelDef kQwen2 = {"qwen2", "Qwen 2, Qwen 2.5 and 2.5-Coder", read_config};

}  // namespace kvikk
