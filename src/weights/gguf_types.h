#pragma once
// The numbers that GGUF gives to tensor types: which of them this program reads, and the names of
// all, so that a refusal can say what the file has.

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace kvikk::gguf {

// Nothing if the type is unknown or not supported.
std::optional<DType> dtype_of_gguf(uint32_t type_id);

// The field's name of a type, supported or not; null if no version of the format has it.
const char* gguf_type_name(uint32_t type_id);

// "F32, F16, Q4_0, ..." in the order of their numbers.
std::string supported_gguf_types();

}  // namespace kvikk::gguf
