// See piece_bpe.h for the order of merges.
#include "text/piece_bpe.h"

#include <algorithm>
#include <numeric>

#include "text/utf8.h"

namespace kvikk {
namespace {

// Stands for a character that has neither a token nor byte tokens, in a vocabulary without <unk>.
constexpr TokenId kNothing = INT32_MAX;

// The value of "<0x0A>", or -1.
int parse_byte_token(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

}  // namespace

std::string PieceBpe::with_plain_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0;;) {
    const size_t mark = text.find(kSpaceMark, at);
    out.append(text.substr(at, mark - at));
    if (mark == std::string_view::npos) return out;
    out.push_back(' ');
    at = mark + kSpaceMark.size();
  }
}

std::optional<char> PieceBpe::token_byte(std::string_view token) {
  const int byte = parse_byte_token(token);
  if (byte < 0) return std::nullopt;
  return static_cast<char>(byte);
}

PieceBpe::PieceBpe(const VocabularyData& data, const TokenTexts& texts)
    : texts_(&texts),
      ids_(data.tokens.size()),
      order_(data.tokens.size(), kNoMerge),
      unknown_(data.unk),
      joins_(data.tokens.size()) {
  byte_tokens_.fill(-1);
}

Result<std::unique_ptr<PieceBpe>> PieceBpe::create(const VocabularyData& data,
                                                   const TokenTexts& texts) {
  if (data.scores.empty()) {
    return damaged("the vocabulary has no scores (tokenizer.ggml.scores), which order its merges");
  }
  std::unique_ptr<PieceBpe> model(new PieceBpe(data, texts));
  TRY(model->add_byte_tokens(data));
  TRY(model->add_pieces(data));
  model->set_order(data);
  return model;
}

Status PieceBpe::add_byte_tokens(const VocabularyData& data) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] != TokenType::kByte) continue;
    const int byte = parse_byte_token(data.tokens[id]);
    if (byte < 0) {
      return damaged("token " + std::to_string(id) + " is a byte token but is written '" +
                     data.tokens[id] + "', not like <0x0A>");
    }
    byte_tokens_[byte] = static_cast<TokenId>(id);
  }
  return ok_status();
}

Status PieceBpe::add_pieces(const VocabularyData& data) {
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    if (!can_come_from_text(data.types[id]) || token.empty() || !is_valid_utf8(token)) continue;
    // A plain space in a token cannot be reached: normalised text has U+2581 instead.
    if (token.find(' ') != std::string::npos) continue;
    const auto own = static_cast<TokenId>(id);
    TRY_ASSIGN(const TokenId first, ids_.add(own, *texts_));
    if (first != own) return duplicate_token(data, first, own);
    order_[id] = 0;
    piece_bytes_max_ = std::max(piece_bytes_max_, (*texts_)(own).size());
    joins_.add((*texts_)(own));
  }
  return ok_status();
}

void PieceBpe::set_order(const VocabularyData& data) {
  std::vector<TokenId> by_score;
  uint32_t next = 0;
  for (size_t id = 0; id < order_.size(); ++id) {
    if (order_[id] == kNoMerge) continue;
    if (data.types[id] == TokenType::kUserDefined) {
      order_[id] = next++;
    } else {
      by_score.push_back(static_cast<TokenId>(id));
    }
  }
  const auto before = [&data](TokenId a, TokenId b) {
    return data.scores[a] != data.scores[b] ? data.scores[a] > data.scores[b] : a < b;
  };
  if (!std::is_sorted(by_score.begin(), by_score.end(), before)) {
    std::sort(by_score.begin(), by_score.end(), before);
  }
  for (const TokenId id : by_score) order_[id] = next++;
}

void PieceBpe::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  if (text.empty()) return;
  const size_t start = out->size();
  const char* const end = text.data() + text.size();
  const char* piece = text.data();
  DecodedChar left = decode_valid_utf8(piece);
  for (const char* p = piece + left.bytes;; p += left.bytes) {
    const DecodedChar right = p < end ? decode_valid_utf8(p) : DecodedChar{};
    if (p < end && joins_.may_join(left.code_point, right.code_point)) {
      left = right;
      continue;
    }
    const std::string_view view(piece, p - piece);
    const size_t before = out->size();
    const bool known = state->cache.append_known(view, out);
    if (!known) encode_piece(view, &state->queue, out);
    // Neighbouring unknowns are one.
    const bool fuse = unknown_.has_value() && before > start && before < out->size() &&
                      (*out)[before - 1] == *unknown_ && (*out)[before] == *unknown_;
    if (fuse) {
      out->erase(out->begin() + static_cast<ptrdiff_t>(before));
      state->cache.forget();
    }
    if (!known) state->cache.end(*out);
    if (p >= end) return;
    piece = p;
    left = right;
  }
}

void PieceBpe::encode_piece(std::string_view piece, MergeQueue* queue,
                            std::vector<TokenId>* out) const {
  queue->clear();
  const char* const end = piece.data() + piece.size();
  for (const char* p = piece.data(); p < end;) {
    const auto begin = static_cast<uint32_t>(p - piece.data());
    const uint32_t bytes = decode_valid_utf8(p).bytes;
    add_symbol(piece, begin, begin + bytes, queue);
    p += bytes;
  }
  const size_t start = out->size();
  queue->run(
      [this, piece](const MergeQueue::Symbol& left, const MergeQueue::Symbol& right) -> Merge {
        const auto is_fixed = [this](TokenId id) {
          return id == kNothing || order_[id] == kNoMerge;
        };
        const size_t bytes = right.end - left.begin;
        if (bytes > piece_bytes_max_ || is_fixed(left.token) || is_fixed(right.token)) return {};
        const TokenId token = ids_.find(piece.substr(left.begin, bytes), *texts_);
        if (token < 0) return {};
        return {order_[token], static_cast<uint32_t>(left.token), token};
      },
      out);
  const auto first = out->begin() + static_cast<ptrdiff_t>(start);
  const auto kept = std::remove(first, out->end(), kNothing);
  const auto fused = std::unique(first, kept, [this](TokenId a, TokenId b) {
    return unknown_.has_value() && a == *unknown_ && b == *unknown_;
  });
  out->erase(fused, out->end());
}

void PieceBpe::add_symbol(std::string_view piece, uint32_t begin, uint32_t end,
                          MergeQueue* queue) const {
  const TokenId token = ids_.find(piece.substr(begin, end - begin), *texts_);
  if (token >= 0) {
    queue->add(begin, end, token);
    return;
  }
  bool has_bytes = true;
  for (uint32_t i = begin; i < end; ++i) {
    has_bytes = has_bytes && byte_tokens_[static_cast<unsigned char>(piece[i])] >= 0;
  }
  if (!has_bytes) {
    queue->add(begin, end, unknown_.value_or(kNothing));
    return;
  }
  for (uint32_t i = begin; i < end; ++i) {
    queue->add(i, i + 1, byte_tokens_[static_cast<unsigned char>(piece[i])]);
  }
}

}  // namespace kvikk
