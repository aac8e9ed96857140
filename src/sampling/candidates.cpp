// Filters that shorten the choice without sorting it: thresholds over block maxima first, selection
// within the little that is left.

#include "sampling/candidates.h"

#include <cmath>
#include <functional>

#include "sampling/numeric.h"

namespace kvikk {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// In chunks, so that the exponentials are computed side by side.
void weigh_items(std::span<Candidate> items, double top) {
  constexpr size_t kChunk = 256;
  double x[kChunk];
  while (!items.empty()) {
    const auto chunk = items.first(std::min(kChunk, items.size()));
    for (size_t i = 0; i < chunk.size(); ++i) x[i] = chunk[i].logit - top;
    exp_in_place(x, chunk.size());
    for (size_t i = 0; i < chunk.size(); ++i) chunk[i].weight = x[i];
    items = items.subspan(chunk.size());
  }
}

}  // namespace

Result<Candidates> Candidates::create(size_t vocabulary) {
  CHECK(vocabulary > 0);
  const size_t floats = vocabulary + 2 * LogitBlocks::blocks_for(vocabulary);
  Candidates c;
  c.vocabulary_ = vocabulary;
  TRY_ASSIGN(c.memory_, Buffer::allocate(vocabulary * sizeof(Candidate) + floats * sizeof(float)));
  return c;
}

void Candidates::begin(std::span<const float> raw) {
  CHECK(raw.size() == vocabulary_);
  source_ = raw;
  is_list_ = false;
  weighed_ = false;
  count_ = 0;
}

std::span<float> Candidates::edit() {
  if (source_.data() != edited()) {
    std::copy(source_.begin(), source_.end(), edited());
    source_ = {edited(), vocabulary_};
  }
  return {edited(), vocabulary_};
}

Status Candidates::scan(uint64_t position) { return row_.scan(source_, maxima(), position); }

std::span<Candidate> Candidates::list() {
  if (!is_list_) gather(LogitBlocks::kForbidden);
  return {list_(), count_};
}

float Candidates::top() const {
  if (!is_list_) return row_.top();
  float top = list_()[0].logit;
  for (const Candidate& c : list()) top = std::max(top, c.logit);
  return top;
}

std::span<Candidate> Candidates::weigh() {
  const auto items = list();
  if (!weighed_) weigh_items(items, row_.top());
  weighed_ = true;
  return items;
}

double Candidates::total_weight(std::span<const Candidate> list) {
  double total = 0;
  for (const Candidate& c : list) total += c.weight;
  return total;
}

void Candidates::append_between(double lowest, double limit) {
  Candidate* out = list_() + count_;
  row_.for_each_between(lowest, limit, [&](TokenId token, float logit) {
    *out++ = {token, logit, 0.0};
  });
  count_ = static_cast<size_t>(out - list_());
}

void Candidates::gather(double lowest) {
  is_list_ = true;
  weighed_ = false;
  count_ = 0;
  append_between(lowest, kNoLimit);
}

void Candidates::keep_first(size_t count) {
  CHECK(is_list_);
  CHECK(count >= 1);
  CHECK(count <= count_);
  count_ = count;
}

void Candidates::keep_best() {
  if (is_list_) {
    std::swap(list_()[0], *std::min_element(list_(), list_() + count_, before));
  } else {
    list_()[0] = {row_.best(), row_.top(), 1.0};
    is_list_ = true;
    weighed_ = true;
  }
  count_ = 1;
}

void Candidates::keep_top(size_t count) {
  CHECK(count >= 1);
  if (!is_list_) {
    if (count >= vocabulary_) return;
    // The count-th highest block maximum is a floor: that many blocks have a logit at least as
    // high.
    double floor = LogitBlocks::kForbidden;
    const auto blocks = row_.maxima();
    if (count <= blocks.size()) {
      float* copy = maxima_copy();
      std::copy(blocks.begin(), blocks.end(), copy);
      std::nth_element(copy, copy + (count - 1), copy + blocks.size(), std::greater<>());
      floor = copy[count - 1];
    }
    gather(floor);
  }
  if (count >= count_) return;
  std::nth_element(list_(), list_() + count, list_() + count_, before);
  count_ = count;
}

void Candidates::keep_from(double lowest) {
  if (!is_list_) {
    gather(lowest);
  } else {
    const auto below = [&](const Candidate& c) { return c.logit < lowest; };
    count_ = static_cast<size_t>(std::remove_if(list_(), list_() + count_, below) - list_());
  }
  CHECK(count_ >= 1);
}

void Candidates::keep_mass(double share) {
  if (is_list_) {
    const auto items = weigh();
    count_ = select_mass(items, share * total_weight(items), before);
    return;
  }
  // Lists the tokens from the top down, some distance at a time, until they hold the share.
  const double top = row_.top();
  const double target = share * sum_exp(source_.data(), vocabulary_, top);
  constexpr double kStep = 2;
  constexpr double kLastDistance = 64;  // then all the rest at once
  is_list_ = true;
  double limit = kNoLimit, distance = 0, held = 0;
  do {
    distance += kStep;
    const double lowest = distance < kLastDistance ? top - distance : LogitBlocks::kForbidden;
    const size_t listed = count_;
    append_between(lowest, limit);
    const auto added = list().subspan(listed);
    weigh_items(added, top);
    held += total_weight(added);
    limit = lowest;
  } while (held < target * kShareSlack && limit != LogitBlocks::kForbidden);
  weighed_ = true;
  count_ = select_mass(list(), target, before);
}

}  // namespace kvikk
