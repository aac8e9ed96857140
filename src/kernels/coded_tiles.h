#pragma once
// Rows of queries against coded pages (coded_page.h), a tile of rows at a time: what the kernels of
// AVX2 and AVX-512 do alike around the arithmetic of a tile.

#include "kernels/coded_terms.h"

namespace kvikk {

namespace {

struct Tile {
  const CodedAttendArgs* args;
  size_t page, row;  // index of the page; first row
  size_t key_dims, value_dims;
  float* sums;         // [rows][kLanes]
  float* weights;      // [tile rows][64]
  uint8_t* bytes;      // [tile rows][64]: weights as bytes
  const float* terms;  // gather_terms() of this tile
  float* turned;       // turn_terms() to the page
};

// Cuts the rows into tiles of at most kRowsMax, as even as can be, and lets each meet every page:
// before_page(index) once, then attend(tile, rows). Everything that is summed begins at zero. The
// sums of the softmax weights, [rows][kLanes].
template <size_t kRowsMax, size_t kLanes, class BeforePage, class Attend>
const float* attend_in_tiles(const CodedAttendArgs& args, BeforePage before_page, Attend attend) {
  static_assert(kRowsMax <= kTileRowsMax);
  Tile tile;
  tile.args = &args;
  tile.key_dims = coded_dims(*args.keys);
  tile.value_dims = coded_dims(*args.values);
  tile.weights = reinterpret_cast<float*>(args.scratch);
  tile.bytes = args.scratch + kRowsMax * kPageTokens * sizeof(float);
  tile.sums = reinterpret_cast<float*>(tile.bytes + kRowsMax * kPageTokens);
  for (size_t i = 0; i < args.rows * kLanes; ++i) tile.sums[i] = 0.0f;
  for (size_t i = 0; i < args.rows * tile.value_dims; ++i) args.acc[i] = 0.0f;
  const size_t tiles = (args.rows + kRowsMax - 1) / kRowsMax;
  const auto first_row = [&](size_t t) { return args.rows * t / tiles; };
  const size_t terms_floats = args.position != nullptr ? terms_floats_of(*args.position) : 0;
  float* terms = tile.sums + args.rows * kLanes;
  for (size_t t = 0; args.position != nullptr && t < tiles; ++t) {
    gather_terms(args, first_row(t), first_row(t + 1) - first_row(t), terms + t * terms_floats);
  }
  tile.turned = terms + tiles * terms_floats;
  for (tile.page = 0; tile.page < args.page_count; ++tile.page) {
    before_page(tile.page);
    for (size_t t = 0; t < tiles; ++t) {
      tile.row = first_row(t);
      tile.terms = terms + t * terms_floats;
      attend(tile, first_row(t + 1) - tile.row);
    }
  }
  return tile.sums;
}

}  // namespace

}  // namespace kvikk
