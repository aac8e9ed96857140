#pragma once
// The best of what a scan offers, in one total order, so that the outcome does not depend on the
// order of offers: the higher score first, then the lower id.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvikk {

struct Candidate {
  float score;  // higher is better, whatever the metric
  uint32_t chunk;
  int64_t id;
  uint32_t row;
};

inline bool is_better(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

class TopK {
 public:
  // At most k, none with a score below `floor`.
  TopK(size_t k, float floor) : k_(k), threshold_(floor) {}

  // What has a lower score cannot get in.
  float threshold() const { return threshold_; }
  void offer(const Candidate& candidate) {
    if (!(candidate.score >= threshold_)) return;
    items_.push_back(candidate);
    if (items_.size() >= 2 * k_ + kSlack) shrink();
  }
  void take(const TopK& other) {
    for (const Candidate& candidate : other.items_) offer(candidate);
  }
  // Best first. Ends the collecting.
  std::vector<Candidate> finish() {
    shrink();
    std::sort(items_.begin(), items_.end(), is_better);
    return std::move(items_);
  }

 private:
  static constexpr size_t kSlack = 64;

  void shrink() {
    if (items_.size() <= k_) return;
    const auto last = items_.begin() + static_cast<ptrdiff_t>(k_ - 1);
    std::nth_element(items_.begin(), last, items_.end(), is_better);
    items_.resize(k_);
    threshold_ = std::max(threshold_, items_[k_ - 1].score);
  }

  size_t k_;
  float threshold_;
  std::vector<Candidate> items_;
};

}  // namespace kvikk
