#pragma once
// An index as the bytes of its file, for pickling: through a file in the folder for temporary
// files, which is gone afterwards.

#include <memory>
#include <string>

#include "kvikk/search.h"

namespace kvikk {

// Errors: those of VectorIndex::save and of the folder.
Result<std::string> index_to_bytes(VectorIndex& index);
// Errors: those of VectorIndex::open: bytes that were changed are refused.
Result<std::unique_ptr<VectorIndex>> index_from_bytes(const std::string& bytes,
                                                      const IndexRuntime& runtime);

}  // namespace kvikk
