// Ties and the order of additions are those of the reference library: the first of equal paths
// stays, scores are summed from the left in double precision.
#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/piece_bpe.h"
#include "text/utf8.h"

namespace kvikk {

Result<std::unique_ptr<Unigram>> Unigram::create(const VocabularyData& data) {
  auto model = std::make_unique<Unigram>();
  model->scores_ = data.exact_scores;
  if (model->scores_.empty()) model->scores_.assign(data.scores.begin(), data.scores.end());
  if (model->scores_.size() != data.tokens.size()) {
    return damaged("the vocabulary has " + std::to_string(data.tokens.size()) + " tokens but " +
                   std::to_string(model->scores_.size()) + " scores");
  }
  model->byte_tokens_.fill(-1);
  std::vector<PieceTrie::Entry> entries;
  double least = INFINITY;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const double score = model->scores_[id];
    if (std::isnan(score)) {
      return damaged("the score of token " + std::to_string(id) + " is not a number");
    }
    least = std::min(least, score);
    const std::string& token = data.tokens[id];
    if (data.types[id] == TokenType::kByte) {
      const std::optional<char> byte = PieceBpe::token_byte(token);
      if (byte.has_value()) {
        model->byte_tokens_[static_cast<unsigned char>(*byte)] = static_cast<TokenId>(id);
      }
    }
    // The reference library finds a byte token's name in a text too.
    const bool is_text = can_come_from_text(data.types[id]) || data.types[id] == TokenType::kByte;
    const bool can_match = is_text && !token.empty() && is_valid_utf8(token);
    if (can_match) entries.push_back({token, static_cast<TokenId>(id)});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.text != b.text ? a.text < b.text : a.token < b.token;
  });
  // Of tokens with the same text the last counts.
  const auto kept = std::unique(entries.rbegin(), entries.rend(),
                                [](const auto& a, const auto& b) { return a.text == b.text; });
  entries.erase(entries.begin(), kept.base());
  model->trie_.build(entries);
  model->unknown_ = data.unk;
  constexpr double kUnknownPenalty = 10;
  model->unknown_score_ = least - kUnknownPenalty;
  return model;
}

void Unigram::encode(std::string_view text, EncodeState* state, std::vector<TokenId>* out) const {
  if (state->cache.append_known(text, out)) return;
  encode_piece(text, out);
  state->cache.end(*out);
}

void Unigram::encode_piece(std::string_view text, std::vector<TokenId>* out) const {
  constexpr TokenId kUnknown = -1;
  struct Node {  // the best path that ends here
    double score = 0;
    uint32_t bytes = 0;  // of its last token; 0: no path
    TokenId token = kUnknown;
  };
  std::vector<Node> nodes(text.size() + 1);
  const auto offer = [&nodes](size_t begin, size_t end, double score, TokenId token) {
    if (nodes[end].bytes != 0 && !(score > nodes[end].score)) return;
    nodes[end] = {score, static_cast<uint32_t>(end - begin), token};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t next = begin + decode_valid_utf8(text.data() + begin).bytes;
    const double score = nodes[begin].score;
    bool has_single = false;
    uint32_t node = PieceTrie::kRoot;
    for (size_t at = begin; at < text.size();) {
      node = trie_.next(node, static_cast<unsigned char>(text[at++]));
      if (node == PieceTrie::kNone) break;
      const TokenId token = trie_.token(node);
      if (token < 0) continue;
      offer(begin, at, scores_[static_cast<size_t>(token)] + score, token);
      has_single = has_single || at == next;
    }
    if (!has_single) offer(begin, next, unknown_score_ + score, kUnknown);
    begin = next;
  }
  // Backwards over the best path; runs of unknown characters are one.
  const size_t first = out->size();
  std::vector<TokenId> run;
  for (size_t end = text.size(); end > 0;) {
    const Node& node = nodes[end];
    size_t begin = end - node.bytes;
    if (node.token != kUnknown) {
      out->push_back(node.token);
    } else {
      while (begin > 0 && nodes[begin].token == kUnknown) begin -= nodes[begin].bytes;
      run.clear();
      add_unknown(text.substr(begin, end - begin), &run);
      out->insert(out->end(), run.rbegin(), run.rend());
    }
    end = begin;
  }
  std::reverse(out->begin() + static_cast<ptrdiff_t>(first), out->end());
}

void Unigram::add_unknown(std::string_view run, std::vector<TokenId>* out) const {
  const bool has_bytes = std::all_of(run.begin(), run.end(), [this](char c) {
    return byte_tokens_[static_cast<unsigned char>(c)] >= 0;
  });
  if (has_bytes) {
    for (const char c : run) out->push_back(byte_tokens_[static_cast<unsigned char>(c)]);
  } else if (unknown_.has_value()) {
    out->push_back(*unknown_);
  }
}

}  // namespace kvikk
