#include "sampling/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace kvikk::reference {
namespace {

std::vector<TokenId> window_of(std::span<const TokenId> history, int last_n) {
  const size_t n = last_n < 0 ? history.size() : static_cast<size_t>(last_n);
  return {history.end() - static_cast<long>(std::min(n, history.size())), history.end()};
}

void normalise(std::vector<Token>& tokens) {
  double top = -INFINITY, sum = 0;
  for (const Token& t : tokens) top = std::max(top, t.logit);
  for (Token& t : tokens) sum += t.p = std::exp(t.logit - top);
  for (Token& t : tokens) t.p /= sum;
}

void keep_until(std::vector<Token>& tokens, double mass) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    sum += tokens[i].p;
    if (sum >= mass * (1 - 1e-12)) {  // see docs/sampling.md
      tokens.resize(i + 1);
      break;
    }
  }
}

bool by_logit(const Token& a, const Token& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// For each token of the history: does a breaker end inside it? By the text as a whole.
std::vector<bool> breaks(const SamplingOptions& o, std::span<const TokenId> history,
                         const std::vector<std::string>& vocabulary) {
  std::string text;
  std::vector<size_t> ends;
  for (const TokenId id : history) {
    text += vocabulary[static_cast<size_t>(id)];
    ends.push_back(text.size());
  }
  std::vector<bool> result(history.size(), false);
  for (const std::string& breaker : o.dry_sequence_breakers) {
    for (size_t at = text.find(breaker); at != std::string::npos; at = text.find(breaker, at + 1)) {
      const size_t end = at + breaker.size();
      const auto token = std::lower_bound(ends.begin(), ends.end(), end) - ends.begin();
      result[static_cast<size_t>(token)] = true;
    }
  }
  return result;
}

std::map<TokenId, double> dry_penalties(const SamplingOptions& o, std::span<const TokenId> history,
                                        const std::vector<std::string>& vocabulary) {
  std::map<TokenId, double> result;
  if (o.dry_multiplier == 0) return result;
  const auto all_breaks = breaks(o, history, vocabulary);
  const auto w = window_of(history, o.dry_penalty_last_n);
  const std::vector<bool> is_break(all_breaks.end() - static_cast<long>(w.size()),
                                   all_breaks.end());
  if (w.size() < 2) return result;
  for (size_t i = 0; i + 1 < w.size(); ++i) {  // i: where the earlier occurrence ends
    size_t length = 0;
    while (length <= i && w[i - length] == w[w.size() - 1 - length] &&
           !is_break[w.size() - 1 - length]) {
      ++length;
    }
    if (length == 0 || length < static_cast<size_t>(o.dry_allowed_length) || is_break[i + 1]) {
      continue;
    }
    const double penalty =
        o.dry_multiplier * std::pow(static_cast<double>(o.dry_base),
                                    static_cast<double>(length) - o.dry_allowed_length);
    result[w[i + 1]] = std::max(result[w[i + 1]], penalty);
  }
  return result;
}

}  // namespace

std::vector<float> adjust(const SamplingOptions& o, std::span<const float> raw,
                          std::span<const TokenId> history,
                          const std::vector<std::string>& vocabulary) {
  std::vector<float> logits(raw.begin(), raw.end());
  for (const LogitBias& b : o.logit_bias) {
    float& logit = logits[static_cast<size_t>(b.token)];
    logit = static_cast<float>(static_cast<double>(logit) + b.bias);
  }
  const auto window = window_of(history, o.penalty_last_n);
  for (const TokenId id : std::set<TokenId>(window.begin(), window.end())) {
    const auto count = static_cast<double>(std::count(window.begin(), window.end(), id));
    double x = logits[static_cast<size_t>(id)];
    x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
    x -= count * o.frequency_penalty;
    x -= o.presence_penalty;
    logits[static_cast<size_t>(id)] = static_cast<float>(x);
  }
  for (const auto& [id, penalty] : dry_penalties(o, history, vocabulary)) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit - penalty);
  }
  return logits;
}

std::vector<Token> filter(const SamplingOptions& o, std::span<const float> logits, bool xtc_acts) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != -INFINITY) tokens.push_back({static_cast<TokenId>(i), logits[i], 0});
  }
  std::sort(tokens.begin(), tokens.end(), by_logit);
  if (o.top_n_sigma > 0) {
    double mean = 0, variance = 0;
    for (const Token& t : tokens) mean += t.logit / static_cast<double>(tokens.size());
    for (const Token& t : tokens) {
      variance += (t.logit - mean) * (t.logit - mean) / static_cast<double>(tokens.size());
    }
    const double lowest = tokens[0].logit - o.top_n_sigma * std::sqrt(variance);
    std::erase_if(tokens, [&](const Token& t) { return t.logit < lowest; });
  }
  if (o.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(o.top_k)));
  if (o.typical_p < 1) {
    normalise(tokens);
    double entropy = 0;
    for (const Token& t : tokens) entropy -= t.p > 0 ? t.p * std::log(t.p) : 0;
    const double top = tokens[0].logit;
    const double log_top = std::log(tokens[0].p);
    const auto key = [&](const Token& t) {
      return std::fabs(-(t.logit - top + log_top) - entropy);
    };
    std::stable_sort(tokens.begin(), tokens.end(),
                     [&](const Token& a, const Token& b) { return key(a) < key(b); });
    keep_until(tokens, o.typical_p);
    std::sort(tokens.begin(), tokens.end(), by_logit);
  }
  if (o.top_p < 1) {
    normalise(tokens);
    keep_until(tokens, o.top_p);
  }
  if (o.min_p > 0) {
    normalise(tokens);
    const double lowest = o.min_p * tokens[0].p;
    std::erase_if(tokens, [&](const Token& t) { return t.p < lowest; });
  }
  if (xtc_acts) {
    normalise(tokens);
    size_t top_choices = 0;
    while (top_choices < tokens.size() && tokens[top_choices].p >= o.xtc_threshold) ++top_choices;
    if (top_choices >= 2) {
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<long>(top_choices) - 1);
    }
  }
  normalise(tokens);
  return tokens;
}

std::vector<double> probabilities(const std::vector<Token>& tokens, double temperature) {
  std::vector<double> p;
  double top = -INFINITY, sum = 0;
  for (const Token& t : tokens) top = std::max(top, t.logit);
  for (const Token& t : tokens) p.push_back(std::exp((t.logit - top) / temperature));
  for (const double x : p) sum += x;
  for (double& x : p) x /= sum;
  return p;
}

}  // namespace kvikk::reference
