// The tree is grown lazily: a path that occurred once is a leaf that remembers where, and gets its
// children when it occurs again. So most tokens cost one node, and repeated text costs as many
// steps a token as there are ends of the text that were seen before, at most kDepthMax.
#include "drafting/suffix.h"

#include <unordered_map>

#include "base/check.h"
#include "drafting/ngram_hash.h"

namespace kvikk {
namespace {

constexpr uint32_t kDepthMax = 48;             // tokens of a path
constexpr size_t kNodesMax = size_t{1} << 20;  // of a sequence; then nothing new is learned
constexpr uint32_t kRoot = 0;

struct Node {
  uint32_t count = 0;  // how often the path occurred
  uint32_t end = 0;    // where it ended first; for a leaf of kDepthMax, last
  bool is_leaf = true;
  TokenId best_token = 0;    // the child that occurred most, the newest of equals
  uint32_t best_child = 0;   // 0: no child
  uint32_t best_count = 0;   // its count
  uint32_t total_count = 0;  // of all children
};

// An end of the text whose path is in the tree.
struct Walker {
  uint32_t node;
  uint32_t depth;
};

class SuffixSequence : public SequenceDrafter {
 public:
  SuffixSequence() { nodes_.emplace_back().is_leaf = false; }

  void propose(std::span<const TokenId> tokens, size_t most, Proposal& out) override {
    for (; seen_ < tokens.size(); ++seen_) learn(tokens, static_cast<uint32_t>(seen_));
    if (walkers_.empty()) return;
    const Walker longest = walkers_.front();
    const float trust = trust_in_match(longest.depth);
    uint32_t at = longest.node;
    while (out.tokens.size() < most && !nodes_[at].is_leaf && nodes_[at].best_child != 0) {
      const Node& node = nodes_[at];
      const float share =
          static_cast<float>(node.best_count) / static_cast<float>(node.total_count);
      out.add(node.best_token, trust * share);
      at = node.best_child;
    }
    if (nodes_[at].is_leaf) out.copy(tokens, nodes_[at].end, most, trust);
  }

 private:
  static uint64_t key_of(uint32_t node, TokenId token) {
    return uint64_t{node} << 32 | static_cast<uint32_t>(token);
  }

  // The child of `node` for `token`, or a new leaf that ends at `end`; 0 where there is no room.
  uint32_t child_of(uint32_t node, TokenId token, uint32_t end, bool* is_new) {
    const auto found = children_.find(key_of(node, token));
    *is_new = found == children_.end();
    if (!*is_new) return found->second;
    if (nodes_.size() == kNodesMax) return 0;
    const auto child = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back().end = end;
    children_.emplace(key_of(node, token), child);
    return child;
  }

  void count_child(uint32_t node, TokenId token, uint32_t child) {
    const uint32_t count = ++nodes_[child].count;
    Node& parent = nodes_[node];
    ++parent.total_count;
    if (count < parent.best_count) return;
    parent.best_token = token;
    parent.best_child = child;
    parent.best_count = count;
  }

  // A leaf that is passed again gets the child of the time before.
  void split(std::span<const TokenId> tokens, uint32_t leaf) {
    nodes_[leaf].is_leaf = false;
    const uint32_t next = nodes_[leaf].end + 1;
    CHECK(next < tokens.size());
    bool is_new;
    const uint32_t child = child_of(leaf, tokens[next], next, &is_new);
    if (child != 0) count_child(leaf, tokens[next], child);
  }

  // Every end of the text before token `at`, and the empty one, goes on with it.
  void learn(std::span<const TokenId> tokens, uint32_t at) {
    const TokenId token = tokens[at];
    walkers_.push_back({kRoot, 0});
    size_t kept = 0;
    for (const Walker walker : walkers_) {
      if (nodes_[walker.node].is_leaf) split(tokens, walker.node);
      bool is_new;
      const uint32_t child = child_of(walker.node, token, at, &is_new);
      if (child == 0) continue;
      count_child(walker.node, token, child);
      if (is_new) continue;  // nothing known follows
      if (walker.depth + 1 == kDepthMax) {
        nodes_[child].end = at;
        continue;
      }
      walkers_[kept++] = {child, walker.depth + 1};
    }
    walkers_.resize(kept);
  }

  size_t seen_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, uint32_t> children_;  // node and token: the child
  std::vector<Walker> walkers_;                      // the longest first
};

class SuffixDrafter : public Drafter {
 public:
  const char* name() const override { return "suffix"; }
  std::unique_ptr<SequenceDrafter> begin(const Sampler&) override {
    return std::make_unique<SuffixSequence>();
  }
};

}  // namespace

std::unique_ptr<Drafter> make_suffix_drafter() { return std::make_unique<SuffixDrafter>(); }

}  // namespace kvikk
