#pragma once
// The generated table of the catalog's pieces, apart from what a person writes about each model.

#include <span>

#include "weights/catalog.h"

namespace kvikk {

std::span<const CatalogPiece> smollm2_pieces();
std::span<const CatalogPiece> qwen_coder_15_pieces();
std::span<const CatalogPiece> qwen_coder_05_pieces();
std::span<const CatalogPiece> gemma_pieces();
std::span<const CatalogPiece> gemma_terms();
std::span<const CatalogPiece> minilm_pieces();

}  // namespace kvikk
