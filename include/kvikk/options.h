#pragma once
// What a user may set. Each option is declared once, in its struct's visit(): the command-line
// flag, the JSON key, the line in --help, the range check and the table in the documentation all
// come from there.
//
// docs/sampling.md defines every sampling option exactly and gives the order in which they act.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvikk/token.h"

namespace kvikk {

class Status;  // kvikk/status.h

struct LogitBias {
  TokenId token = 0;
  float bias = 0;
};

// What logprobs and top_logprobs report.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0;
};

inline constexpr int32_t kWindowTokensMax = 1 << 24;   // penalty_last_n, dry_penalty_last_n
inline constexpr int32_t kTopLogprobsMax = 20;         // top_logprobs
inline constexpr int64_t kFreshSeed = -1;              // seed: take one from the system
inline constexpr size_t kLogitBiasEntriesMax = 4096;   // logit_bias
inline constexpr size_t kDryBreakersMax = 64;          // dry_sequence_breakers, strings
inline constexpr size_t kDryBreakerBytesMax = 64;      // dry_sequence_breakers, bytes of one string
inline constexpr int32_t kDryAllowedLengthMax = 1024;  // dry_allowed_length

// The defaults are those that users of llama.cpp expect: a mild draw, every penalty off.
struct SamplingOptions {
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float typical_p = 1;
  float top_n_sigma = 0;
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int32_t penalty_last_n = 64;
  std::vector<LogitBias> logit_bias;
  int64_t seed = kFreshSeed;
  bool logprobs = false;
  int32_t top_logprobs = 0;

  // Calls v(field, name, min, max, help) for each option. Of a list, min and max bound the number
  // in an entry (logit_bias) or the bytes of one (dry_sequence_breakers).
  template <class V>
  void visit(V&& v) {
    visit_fields(*this, v);
  }
  template <class V>
  void visit(V&& v) const {
    visit_fields(*this, v);
  }

 private:
  template <class Self, class V>
  static void visit_fields(Self& o, V& v) {
    v(o.temperature, "temperature", 0.0, 1e6, "divides the logits before the draw; 0 = greedy");
    v(o.top_k, "top_k", -1, INT32_MAX, "keep the k most likely tokens; 0 or -1 = off");
    v(o.top_p, "top_p", 0.0, 1.0, "keep the most likely tokens that hold this mass; 1 = off");
    v(o.min_p, "min_p", 0.0, 1.0, "keep tokens at least this likely beside the top one; 0 = off");
    v(o.typical_p, "typical_p", 0.0, 1.0, "keep the most typical tokens of this mass; 1 = off");
    v(o.top_n_sigma, "top_n_sigma", 0.0, 1e6,
      "keep logits within n standard deviations of the top one; 0 = off");
    v(o.xtc_probability, "xtc_probability", 0.0, 1.0,
      "how often XTC removes the top choices; 0 = off");
    v(o.xtc_threshold, "xtc_threshold", 0.0, 1.0,
      "tokens this likely are top choices; the least likely of them stays");
    v(o.dry_multiplier, "dry_multiplier", 0.0, 1e6,
      "DRY: strength of the penalty on continuing a repetition; 0 = off");
    v(o.dry_base, "dry_base", 1.0, 1e6, "DRY: growth of the penalty per repeated token");
    v(o.dry_allowed_length, "dry_allowed_length", 0, kDryAllowedLengthMax,
      "DRY: repeated tokens from which on the penalty applies");
    v(o.dry_penalty_last_n, "dry_penalty_last_n", -1, kWindowTokensMax,
      "DRY: how many tokens back to look; -1 = all, 0 = off");
    v(o.dry_sequence_breakers, "dry_sequence_breakers", 1, static_cast<int>(kDryBreakerBytesMax),
      "DRY: texts across which nothing counts as a repetition");
    v(o.repetition_penalty, "repetition_penalty", 0.01, 100.0,
      "divides positive, multiplies negative logits of tokens in the window; 1 = off");
    v(o.presence_penalty, "presence_penalty", -100.0, 100.0,
      "subtracted once from logits of tokens in the window; 0 = off");
    v(o.frequency_penalty, "frequency_penalty", -100.0, 100.0,
      "subtracted for each occurrence in the window; 0 = off");
    v(o.penalty_last_n, "penalty_last_n", -1, kWindowTokensMax,
      "tokens in the window of the three penalties above; -1 = all, 0 = off");
    v(o.logit_bias, "logit_bias", -1000.0, 1000.0, "added to the logits of single tokens");
    v(o.seed, "seed", kFreshSeed, INT64_MAX,
      "the same seed gives the same draws; -1 = a fresh one for each request");
    v(o.logprobs, "logprobs", false, true, "report the log-probability of each chosen token");
    v(o.top_logprobs, "top_logprobs", 0, kTopLogprobsMax,
      "report this many most likely tokens as well; implies logprobs");
  }
};

// kInvalidArgument that names the option, its value and its range. NaN is never in range.
// `vocabulary` is the number of logits of the model.
Status validate(const SamplingOptions& options, size_t vocabulary);

}  // namespace kvikk
