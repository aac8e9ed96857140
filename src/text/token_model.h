#pragma once
// A token model turns plain text, where no special token is meant, into ids. Kinds: ByteBpe (GPT-2
// and its descendants) and PieceBpe (SentencePiece).

#include <string_view>
#include <vector>

#include "kvikk/token.h"
#include "text/merge_queue.h"

namespace kvikk {

// Remembers the ids of pieces that were seen in this text, because words recur. It holds no copies:
// pieces are views into the text and their ids are where they were appended, so it lives for one
// encode call. Direct-mapped: a newer piece replaces an older one.
class PieceCache {
 public:
  explicit PieceCache(size_t text_bytes);

  // Appends the ids that `piece` got before and returns true, or remembers that the ids which the
  // caller appends next are the piece's: between this call and end(), or never after forget().
  bool append_known(std::string_view piece, std::vector<TokenId>* out);
  void end(const std::vector<TokenId>& out);
  void forget();

 private:
  static constexpr size_t kPieceBytesMax = 64;
  struct Entry {
    const char* data = nullptr;
    uint32_t bytes = 0;
    uint32_t first = 0;  // of the ids in the output
    uint32_t count = 0;
  };
  std::vector<Entry> entries_;  // a power of two
  Entry* open_ = nullptr;
};

// What one encode call needs and reuses from piece to piece.
struct EncodeState {
  explicit EncodeState(size_t text_bytes) : cache(text_bytes) {}
  PieceCache cache;
  MergeQueue queue;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `text`: well-formed UTF-8, normalised as the model wants it, and unchanged
  // in memory as long as `state` is in use.
  virtual void encode(std::string_view text, EncodeState* state,
                      std::vector<TokenId>* out) const = 0;
};

}  // namespace kvikk
