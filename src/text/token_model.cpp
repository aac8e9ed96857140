#include "text/token_model.h"

#include <algorithm>

#include "text/string_table.h"

namespace kvikk {

PieceCache::PieceCache(size_t text_bytes) {
  constexpr size_t kEntriesMax = size_t{1} << 14;
  size_t entries = 8;
  while (entries < kEntriesMax && entries * 8 < text_bytes) entries *= 2;
  entries_.resize(entries);
}

bool PieceCache::append_known(std::string_view piece, std::vector<TokenId>* out) {
  open_ = nullptr;
  if (piece.size() > kPieceBytesMax) return false;
  Entry& entry = entries_[hash_bytes(piece) & (entries_.size() - 1)];
  if (std::string_view(entry.data, entry.bytes) == piece) {
    out->resize(out->size() + entry.count);
    std::copy_n(out->begin() + entry.first, entry.count, out->end() - entry.count);
    return true;
  }
  entry = {piece.data(), static_cast<uint32_t>(piece.size()), static_cast<uint32_t>(out->size()),
           0};
  open_ = &entry;
  return false;
}

void PieceCache::forget() {
  if (open_ != nullptr) *open_ = {};
  open_ = nullptr;
}

void PieceCache::end(const std::vector<TokenId>& out) {
  if (open_ == nullptr) return;
  open_->count = static_cast<uint32_t>(out.size()) - open_->first;
  open_ = nullptr;
}

}  // namespace kvikk
