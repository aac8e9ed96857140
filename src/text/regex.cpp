// Matching. Parsing is in regex_parser.cpp.
#include "text/regex.h"

#include <algorithm>

#include "base/check.h"
#include "text/utf8.h"

namespace kvikk {

// For each position of a text, the states from which a match can be completed there.
class Regex::Alive {
 public:
  Alive(size_t positions, size_t states) : words_((states + 63) / 64), bits_(positions * words_) {}
  uint64_t* at(size_t position) { return bits_.data() + position * words_; }
  const uint64_t* at(size_t position) const { return bits_.data() + position * words_; }
  static bool has(const uint64_t* row, uint32_t state) {
    return row[state / 64] >> (state % 64) & 1;
  }
  static void set(uint64_t* row, uint32_t state) { row[state / 64] |= uint64_t{1} << (state % 64); }

 private:
  size_t words_;
  std::vector<uint64_t> bits_;  // [positions, words]
};

void Regex::finish() {
  partition_.build(sets_);
  // Depth first over the steps that take no character; the parser makes no cycle of them.
  std::vector<bool> seen(states_.size());
  std::vector<std::pair<uint32_t, int>> stack;
  for (uint32_t root = 0; root < states_.size(); ++root) {
    if (seen[root]) continue;
    seen[root] = true;
    stack.push_back({root, 0});
    while (!stack.empty()) {
      const uint32_t index = stack.back().first;
      const int branch = stack.back().second++;
      if (branch == 2) {
        order_.push_back(index);
        stack.pop_back();
        continue;
      }
      const State& state = states_[index];
      const bool has_other = state.kind == Kind::kChoice || state.kind == Kind::kAhead ||
                             state.kind == Kind::kNotAhead;
      const bool has_next = state.kind != Kind::kChar && state.kind != Kind::kMatch;
      const uint32_t target = branch == 0 ? state.next : state.other;
      if (!(branch == 0 ? has_next : has_other) || seen[target]) continue;
      seen[target] = true;
      stack.push_back({target, 0});
    }
  }
}

bool Regex::holds(const State& state, const Place& place, const uint64_t* alive) const {
  const auto& [text, at, before, after] = place;
  const size_t word = sets_.size() - 1;
  const auto in = [](uint64_t mask, size_t set) { return (mask >> set & 1) != 0; };
  switch (state.kind) {
    case Kind::kLineBegin:
      return at == 0 || text[at - 1] == '\n';
    case Kind::kLineEnd:
      return at == text.size() || text[at] == '\n';
    case Kind::kTextBegin:
      return at == 0;
    case Kind::kTextEnd:
      return at == text.size();
    case Kind::kTextEndOrLastLine:
      return at == text.size() || (at + 1 == text.size() && text[at] == '\n');
    case Kind::kWordEdge:
      return in(before, word) != in(after, word);
    case Kind::kNotWordEdge:
      return in(before, word) == in(after, word);
    case Kind::kAhead:
      return Alive::has(alive, state.other);
    case Kind::kNotAhead:
      return !Alive::has(alive, state.other);
    case Kind::kBehind:
      return in(before, state.argument);
    case Kind::kNotBehind:
      return !in(before, state.argument);
    case Kind::kNotNext:
      return !in(after, state.argument);
    default:
      return false;
  }
}

void Regex::fill(std::string_view text, Alive* alive) const {
  uint64_t after = 0;
  size_t next = text.size();
  for (size_t at = text.size();;) {
    size_t previous = at;
    uint64_t before = 0;
    if (at > 0) {
      do {
        --previous;
      } while (is_utf8_continuation(text[previous]));
      before = partition_.mask(decode_valid_utf8(text.data() + previous).code_point);
    }
    uint64_t* const row = alive->at(at);
    const uint64_t* const row_after = alive->at(next);
    const Place place{text, at, before, after};
    for (const uint32_t index : order_) {
      const State& state = states_[index];
      bool lives;
      if (state.kind == Kind::kChar) {
        lives = (after >> state.argument & 1) != 0 && Alive::has(row_after, state.next);
      } else if (state.kind == Kind::kChoice) {
        lives = Alive::has(row, state.next) || Alive::has(row, state.other);
      } else {
        lives =
            state.kind == Kind::kMatch || (Alive::has(row, state.next) && holds(state, place, row));
      }
      if (lives) Alive::set(row, index);
    }
    if (at == 0) return;
    next = at;
    after = before;
    at = previous;
  }
}

size_t Regex::match_end(const Alive& alive, std::string_view text, size_t at) const {
  for (uint32_t index = start_;;) {
    const State& state = states_[index];
    switch (state.kind) {
      case Kind::kMatch:
        return at;
      case Kind::kChar:
        at += decode_valid_utf8(text.data() + at).bytes;
        index = state.next;
        break;
      case Kind::kChoice:
        index = Alive::has(alive.at(at), state.next) ? state.next : state.other;
        break;
      default:
        index = state.next;
    }
  }
}

void Regex::find_all(std::string_view text, const std::function<void(size_t, size_t)>& emit) const {
  Alive alive(text.size() + 1, states_.size());
  fill(text, &alive);
  size_t last_end = SIZE_MAX;
  for (size_t at = 0; at <= text.size();) {
    if (Alive::has(alive.at(at), start_)) {
      const size_t end = match_end(alive, text, at);
      if (end > at || end != last_end) {
        emit(at, end);
        last_end = end;
      }
      if (end > at) {
        at = end;
        continue;
      }
    }
    if (at == text.size()) break;
    at += decode_valid_utf8(text.data() + at).bytes;
  }
}

}  // namespace kvikk
