// Matching. Compiling is in split_pattern_parser.cpp.
#include "text/split_pattern.h"

#include "base/check.h"

namespace kvikk {

void SplitPattern::finish() {
  for (size_t i = 0; i < classes_.size(); ++i) {
    for (unsigned c = 0; c < 128; ++c) {
      ascii_classes_[c] |= uint64_t{classes_[i].ascii_contains(c)} << i;
    }
    if (classes_[i].has_ranges()) {
      classes_with_ranges_ |= uint64_t{1} << i;
      continue;
    }
    for (int category = 0; category < kCategoryCount; ++category) {
      category_classes_[category] |= uint64_t{classes_[i].categories() >> category & 1} << i;
    }
  }
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    for (unsigned c = 0; c < 128; ++c) {
      const bool starts = (alternatives_[i].first_classes & ascii_classes_[c]) != 0;
      if (starts) ascii_alternatives_[c] |= uint32_t{1} << i;
    }
  }
}

bool SplitPattern::in_class(uint32_t class_index, char32_t c) const {
  if (classes_with_ranges_ >> class_index & 1) return classes_[class_index].contains(c);
  return category_classes_[category_of(c)] >> class_index & 1;
}

uint64_t SplitPattern::classes_of(char32_t c) const {
  uint64_t mask = category_classes_[category_of(c)];
  for (uint64_t left = classes_with_ranges_; left != 0; left &= left - 1) {
    const int i = __builtin_ctzll(left);
    if (classes_[i].contains(c)) mask |= uint64_t{1} << i;
  }
  return mask;
}

const char* SplitPattern::run(const Step& step, const char* p, const char* end,
                              uint32_t* count) const {
  const uint64_t class_bit = uint64_t{1} << step.class_index;
  uint32_t n = 0;
  while (p < end && n < step.max) {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) {
      if ((ascii_classes_[byte] & class_bit) == 0) break;
      ++p;
    } else {
      const DecodedChar c = decode_valid_utf8(p);
      if (!in_class(step.class_index, c.code_point)) break;
      p += c.bytes;
    }
    ++n;
  }
  *count = n;
  return p;
}

const char* SplitPattern::match_at(const char* p, const char* end, FailedRuns& failed) const {
  const auto byte = static_cast<unsigned char>(*p);
  uint32_t candidates;
  if (byte < 0x80) {
    candidates = ascii_alternatives_[byte];
  } else {
    const uint64_t classes = classes_of(decode_valid_utf8(p).code_point);
    candidates = 0;
    for (size_t i = 0; i < alternatives_.size(); ++i) {
      if (alternatives_[i].first_classes & classes) candidates |= uint32_t{1} << i;
    }
  }
  for (; candidates != 0; candidates &= candidates - 1) {
    const int i = __builtin_ctz(candidates);
    const std::vector<Step>& steps = alternatives_[i].steps;
    if (p < failed[i]) continue;
    const char* match_end = match_steps(steps.data(), steps.data() + steps.size(), p, end);
    if (match_end != nullptr) return match_end;
    if (alternatives_[i].leads_with_run) {
      uint32_t count;
      failed[i] = run(steps[0], p, end, &count);
    }
  }
  return nullptr;
}

const char* SplitPattern::match_steps(const Step* step, const Step* last, const char* p,
                                      const char* end) const {
  if (step == last) return p;
  switch (step->kind) {
    case Step::Kind::kLineEnd:
      return p == end || *p == '\n' ? match_steps(step + 1, last, p, end) : nullptr;
    case Step::Kind::kNotNonSpace:
      if (p < end && !is_white_space(decode_valid_utf8(p).code_point)) return nullptr;
      return match_steps(step + 1, last, p, end);
    case Step::Kind::kOneOf:
      return match_one_of(step, last, p, end);
    case Step::Kind::kRepeat:
      break;
  }
  uint32_t count;
  const char* q = run(*step, p, end, &count);
  if (count < step->min) return nullptr;
  if (step + 1 == last) return q;
  for (;;) {
    const char* match_end = match_steps(step + 1, last, q, end);
    if (match_end != nullptr) return match_end;
    if (count == step->min || step->possessive) return nullptr;
    --count;
    do {
      --q;
    } while (is_utf8_continuation(*q));
  }
}

const char* SplitPattern::match_one_of(const Step* step, const Step* last, const char* p,
                                       const char* end) const {
  for (uint32_t i = step->first_literal; i < step->last_literal; ++i) {
    const char* q = p;
    for (const uint32_t class_index : literals_[i]) {
      Step once;
      once.class_index = class_index;
      uint32_t count;
      q = run(once, q, end, &count);
      if (count == 0) {
        q = nullptr;
        break;
      }
    }
    if (q == nullptr) continue;
    const char* match_end = match_steps(step + 1, last, q, end);
    if (match_end != nullptr) return match_end;
  }
  return step->min == 0 ? match_steps(step + 1, last, p, end) : nullptr;
}

}  // namespace kvikk
