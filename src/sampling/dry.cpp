// DRY, "don't repeat yourself" (p-e-w 2024, text-generation-webui #5677). If the last L tokens
// stood earlier in the window as well, the token that followed them there is penalised by
// dry_multiplier * dry_base^(L - dry_allowed_length), where L is the longest such match and at
// least dry_allowed_length. A match does not reach across a sequence breaker, and breakers are not
// penalised.
//
// A token is a breaker where one of the texts ends inside it, even when the text began in an
// earlier token.

#include <algorithm>
#include <string>
#include <utility>

#include "sampling/rules.h"

namespace kvikk {
namespace {

// Longer matches count as this long: the penalty has left every scale by then.
constexpr size_t kMatchTokensMax = 512;

double power(double base, size_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

class Breakers {
 public:
  Breakers(std::vector<std::string> texts, TokenBytes bytes)
      : texts_(std::move(texts)), bytes_(std::move(bytes)) {}

  // Whether one of the texts ends in history[at].
  bool end_at(std::span<const TokenId> history, size_t at) const {
    if (texts_.empty()) return false;
    const std::string_view token = bytes_(history[at]);
    for (const std::string_view text : texts_) {
      if (token.find(text) != std::string_view::npos) return true;
      // The text's last `inside` bytes begin this token, the others end the tokens before it.
      for (size_t inside = std::min(text.size() - 1, token.size()); inside >= 1; --inside) {
        const size_t outside = text.size() - inside;
        if (token.starts_with(text.substr(outside)) &&
            text_ends_before(history.first(at), text.substr(0, outside))) {
          return true;
        }
      }
    }
    return false;
  }

 private:
  // Whether the text of `history` ends with `wanted`, looking at no more tokens than that has
  // bytes.
  bool text_ends_before(std::span<const TokenId> history, std::string_view wanted) const {
    size_t tokens_left = wanted.size();
    while (!wanted.empty() && !history.empty() && tokens_left > 0) {
      const std::string_view token = bytes_(history.back());
      const size_t common = std::min(token.size(), wanted.size());
      if (token.substr(token.size() - common) != wanted.substr(wanted.size() - common)) {
        return false;
      }
      wanted.remove_suffix(common);
      history = history.first(history.size() - 1);
      --tokens_left;
    }
    return wanted.empty();
  }

  std::vector<std::string> texts_;
  TokenBytes bytes_;
};

// lengths[i], i >= 1: how many tokens up to window[last - i] equal those up to window[last]. This
// is the Z-function of the reversed window (Gusfield 1997, chapter 1), linear in its length.
void match_backwards(std::span<const TokenId> window, std::span<int32_t> lengths) {
  const size_t n = window.size();
  const auto reversed = [&](size_t i) { return window[n - 1 - i]; };
  size_t left = 0, right = 0;  // the match known so far that reaches furthest: [left, right)
  for (size_t i = 1; i < n; ++i) {
    size_t length = 0;
    if (i < right) length = std::min(right - i, static_cast<size_t>(lengths[i - left]));
    while (i + length < n && reversed(length) == reversed(i + length)) ++length;
    lengths[i] = static_cast<int32_t>(length);
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
}

class DryRule : public LogitsRule {
 public:
  DryRule(const SamplingOptions& o, const TokenBytes& bytes)
      : multiplier_(o.dry_multiplier),
        base_(o.dry_base),
        allowed_(static_cast<size_t>(o.dry_allowed_length)),
        window_tokens_(o.dry_penalty_last_n),
        breakers_(o.dry_sequence_breakers, bytes) {}

  void apply(const DrawContext& draw, SamplerWorkspace& workspace) const override {
    const auto window = last_tokens(draw.history, window_tokens_);
    if (window.size() < 2) return;
    const size_t shortest = std::max<size_t>(allowed_, 1);
    const size_t longest = tokens_since_breaker(draw.history, window.size() - 1);
    if (longest < shortest) return;

    auto& lengths = workspace.match_lengths;
    if (lengths.size() < window.size()) lengths.resize(window.size());
    match_backwards(window, lengths);

    const size_t window_begin = draw.history.size() - window.size();
    const auto tally = workspace.tally();  // the longest match that each token followed
    bool any = false;
    for (size_t i = 1; i < window.size(); ++i) {
      const size_t length = std::min(static_cast<size_t>(lengths[i]), longest);
      const size_t follower = window.size() - i;
      const auto token = static_cast<size_t>(window[follower]);
      if (length < shortest || token >= tally.size()) continue;
      if (static_cast<int32_t>(length) <= tally[token]) continue;
      if (breakers_.end_at(draw.history, window_begin + follower)) continue;
      tally[token] = static_cast<int32_t>(length);
      any = true;
    }
    if (any) penalise(window, tally, workspace.candidates.edit());
  }

 private:
  size_t tokens_since_breaker(std::span<const TokenId> history, size_t most) const {
    most = std::min(most, kMatchTokensMax);
    size_t count = 0;
    while (count < most && !breakers_.end_at(history, history.size() - 1 - count)) ++count;
    return count;
  }

  void penalise(std::span<const TokenId> window, std::span<int32_t> tally,
                std::span<float> logits) const {
    for (const TokenId id : window) {
      const auto token = static_cast<size_t>(id);
      if (token >= tally.size()) continue;
      const auto length = static_cast<size_t>(std::exchange(tally[token], 0));
      if (length == 0) continue;
      const double penalty = length >= allowed_ ? multiplier_ * power(base_, length - allowed_) : 0;
      set_finite(logits[token], logits[token] - penalty);
    }
  }

  double multiplier_, base_;
  size_t allowed_;
  int32_t window_tokens_;
  Breakers breakers_;
};

}  // namespace

bool is_dry_on(const SamplingOptions& options) {
  return options.dry_multiplier != 0 && options.dry_penalty_last_n != 0;
}

RuleResult make_dry(const RuleRequest& request) {
  const SamplingOptions& o = request.options;
  if (!is_dry_on(o)) return std::unique_ptr<LogitsRule>();
  return RuleResult(std::make_unique<DryRule>(o, request.token_bytes));
}

}  // namespace kvikk
