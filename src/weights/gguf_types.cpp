// One table, indexed by the format's number. Numbers of types that were withdrawn keep their last
// name.

#include "weights/gguf_types.h"

#include <iterator>

namespace kvikk::gguf {
namespace {

struct TypeRow {
  const char* name;
  std::optional<DType> type;  // nothing: known by name only
};

constexpr TypeRow kTypes[] = {
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"Q4_0", DType::kQ4_0},  // 0
    {"Q4_1", DType::kQ4_1},
    {"Q4_2", {}},
    {"Q4_3", {}},  // 3
    {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},  // 6
    {"Q8_1", {}},
    {"Q2_K", DType::kQ2_K},
    {"Q3_K", DType::kQ3_K},  // 9
    {"Q4_K", DType::kQ4_K},
    {"Q5_K", DType::kQ5_K},
    {"Q6_K", DType::kQ6_K},  // 12
    {"Q8_K", {}},
    {"IQ2_XXS", DType::kIQ2_XXS},
    {"IQ2_XS", DType::kIQ2_XS},  // 15
    {"IQ3_XXS", DType::kIQ3_XXS},
    {"IQ1_S", DType::kIQ1_S},
    {"IQ4_NL", DType::kIQ4_NL},  // 18
    {"IQ3_S", DType::kIQ3_S},
    {"IQ2_S", DType::kIQ2_S},
    {"IQ4_XS", DType::kIQ4_XS},  // 21
    {"I8", {}},
    {"I16", {}},
    {"I32", {}},  // 24
    {"I64", {}},
    {"F64", {}},
    {"IQ1_M", DType::kIQ1_M},  // 27
    {"BF16", DType::kBF16},
    {"Q4_0_4_4", {}},
    {"Q4_0_4_8", {}},  // 30
    {"Q4_0_8_8", {}},
    {"TQ1_0", DType::kTQ1_0},
    {"TQ2_0", DType::kTQ2_0},  // 33
    {"IQ4_NL_4_4", {}},
    {"IQ4_NL_4_8", {}},
    {"IQ4_NL_8_8", {}},  // 36
    {"MXFP4", DType::kMXFP4},
    {"NVFP4", {}},
    {"Q1_0", {}},  // 39
};

}  // namespace

std::optional<DType> dtype_of_gguf(uint32_t type_id) {
  return type_id < std::size(kTypes) ? kTypes[type_id].type : std::nullopt;
}

const char* gguf_type_name(uint32_t type_id) {
  return type_id < std::size(kTypes) ? kTypes[type_id].name : nullptr;
}

std::string supported_gguf_types() {
  std::string names;
  for (const TypeRow& row : kTypes) {
    if (row.type) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names;
}

}  // namespace kvikk::gguf
