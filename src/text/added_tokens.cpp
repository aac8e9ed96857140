// A trie, laid out breadth first.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvikk {

Result<AddedTokens> AddedTokens::create(const VocabularyData& data) {
  std::vector<Entry> entries;
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (!is_added_token(data.types[id]) || data.tokens[id].empty()) continue;
    // No part of a well-formed text; it could match within a character and tear it.
    if (!is_valid_utf8(data.tokens[id])) continue;
    entries.push_back({data.tokens[id], static_cast<TokenId>(id)});
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.text != b.text ? a.text < b.text : a.token < b.token;
  });
  const auto twin =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.text == b.text; });
  if (twin != entries.end()) return duplicate_token(data, twin[0].token, twin[1].token);
  AddedTokens tokens;
  tokens.build(entries);
  return tokens;
}

void AddedTokens::build(const std::vector<Entry>& sorted) {
  struct Pending {
    size_t begin;  // of the entries that share the node's prefix
    size_t end;
    size_t depth;
  };
  nodes_.emplace_back();
  std::vector<Pending> pending = {{0, sorted.size(), 0}};  // one for each node, in the same order
  for (size_t i = 0; i < pending.size(); ++i) {
    auto [begin, end, depth] = pending[i];
    if (begin < end && sorted[begin].text.size() == depth) nodes_[i].token = sorted[begin++].token;
    nodes_[i].first_edge = static_cast<uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = sorted[begin].text[depth];
      size_t next = begin;
      while (next < end && sorted[next].text[depth] == byte) ++next;
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      pending.push_back({begin, next, depth + 1});
      if (i == 0) first_bytes_.set(static_cast<unsigned char>(byte));
      begin = next;
    }
    nodes_[i].edge_count = static_cast<uint32_t>(edges_.size()) - nodes_[i].first_edge;
  }
}

const AddedTokens::Edge* AddedTokens::find_edge(const Node& node, unsigned char byte) const {
  const Edge* first = edges_.data() + node.first_edge;
  const Edge* last = first + node.edge_count;
  const Edge* edge = std::lower_bound(first, last, byte,
                                      [](const Edge& e, unsigned char b) { return e.byte < b; });
  return edge != last && edge->byte == byte ? edge : nullptr;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest;
    const Node* node = &nodes_[0];
    for (size_t at = begin; at < text.size(); ++at) {
      const Edge* edge = find_edge(*node, static_cast<unsigned char>(text[at]));
      if (edge == nullptr) break;
      node = &nodes_[edge->node];
      if (node->token >= 0) longest = {begin, at + 1, node->token};
    }
    if (longest.token >= 0) return longest;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace kvikk
