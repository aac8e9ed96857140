#include "engine/evaluate.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvikk {

namespace {

Status check_tokens(const Engine& engine, std::span<const TokenId> tokens) {
  if (tokens.empty()) return invalid_argument("there are no tokens");
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<size_t>(tokens[i]) < engine.config().vocabulary) continue;
    return invalid_argument("token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                            "; the vocabulary has " + std::to_string(engine.config().vocabulary));
  }
  return ok_status();
}

Status check_positions(std::span<const uint32_t> positions, size_t tokens) {
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= tokens) {
      return invalid_argument("position " + std::to_string(positions[i]) + " is outside the " +
                              std::to_string(tokens) + " tokens");
    }
    if (i > 0 && positions[i] <= positions[i - 1]) {
      return invalid_argument("positions must ascend; " + std::to_string(positions[i]) +
                              " follows " + std::to_string(positions[i - 1]));
    }
  }
  return ok_status();
}

// One sequence fed step by step, outside the scheduler but through the same forward pass.
class Feeder {
 public:
  explicit Feeder(Engine& engine) : Feeder(engine, engine.pool()) {
    engine.scheduler().prefix_tree().clear();
  }
  Feeder(Engine& engine, PagePool& pool) : engine_(engine), kv_(pool) {}

  size_t length() const { return kv_.length(); }

  // Computes `tokens`; the final states of `outputs` (indices into tokens) are kept.
  Status feed(std::span<const TokenId> tokens, std::vector<uint32_t> outputs) {
    TRY(kv_.reserve(tokens.size()));
    batch_.clear();
    batch_.tokens.assign(tokens.begin(), tokens.end());
    batch_.spans.push_back({&kv_, 0, tokens.size(), kv_.length()});
    batch_.output_rows = std::move(outputs);
    engine_.model().forward(engine_.compute(), batch_);
    kv_.advance(tokens.size());
    kv_.drop_unseen();
    return ok_status();
  }

  // What a cache that drops tokens does behind a prompt.
  Status evict() {
    return kv_.evict(engine_.compute().kernels(),
                     engine_.scheduler().evictor()->choose(engine_.compute(), kv_), [](size_t) {});
  }

  std::span<const float> logits(size_t output) {
    return engine_.model().logits(engine_.compute(), output, 1).first(engine_.config().vocabulary);
  }

 private:
  Engine& engine_;
  SequenceKv kv_;
  Batch batch_;
};

TokenId best_token(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
  const double max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (float x : logits) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum);
}

struct RowDistance {
  double kl;
  double nll_base, nll_test;  // of the token that follows
  bool same_top;
};

RowDistance compare_rows(std::span<const float> base, std::span<const float> test, TokenId next) {
  const double base_sum = log_sum_exp(base);
  const double test_sum = log_sum_exp(test);
  double kl = 0.0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double log_p = static_cast<double>(base[i]) - base_sum;
    const double log_q = static_cast<double>(test[i]) - test_sum;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  const auto n = static_cast<size_t>(next);
  return {kl, base_sum - static_cast<double>(base[n]), test_sum - static_cast<double>(test[n]),
          best_token(base) == best_token(test)};
}

double at_fraction(const std::vector<double>& sorted, double fraction) {
  const double last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::llround(fraction * last))];
}

KlReport summarise(const std::vector<RowDistance>& rows) {
  KlReport report;
  report.tokens = rows.size();
  std::vector<double> sorted;
  double base = 0.0;
  double test = 0.0;
  for (const RowDistance& row : rows) {
    sorted.push_back(row.kl);
    report.mean += row.kl;
    base += row.nll_base;
    test += row.nll_test;
    report.same_top_1 += row.same_top ? 1.0 : 0.0;
  }
  const auto n = static_cast<double>(rows.size());
  report.mean /= n;
  report.same_top_1 /= n;
  double squares = 0.0;
  for (double kl : sorted) squares += (kl - report.mean) * (kl - report.mean);
  report.standard_error = rows.size() > 1 ? std::sqrt(squares / (n - 1.0) / n) : 0.0;
  std::sort(sorted.begin(), sorted.end());
  report.median = at_fraction(sorted, 0.5);
  report.percentile_99 = at_fraction(sorted, 0.99);
  report.percentile_999 = at_fraction(sorted, 0.999);
  report.max = sorted.back();
  report.perplexity_base = std::exp(base / n);
  report.perplexity = std::exp(test / n);
  report.ln_perplexity_ratio = (test - base) / n;
  return report;
}

Status check_text(size_t tokens, size_t context, size_t chunks_max) {
  if (context < 2) return invalid_argument("ctx must be at least 2 tokens");
  if (tokens < context) {
    return invalid_argument("the text has " + std::to_string(tokens) + " tokens; one chunk needs " +
                            std::to_string(context));
  }
  if (chunks_max == 0) return invalid_argument("chunks must be at least 1");
  return ok_status();
}

std::vector<uint32_t> all_rows(size_t count) {
  std::vector<uint32_t> rows(count);
  for (size_t i = 0; i < count; ++i) rows[i] = static_cast<uint32_t>(i);
  return rows;
}

// The logits of up to kLogitsRowsMax outputs of the last step, by row.
class LogitsRows {
 public:
  LogitsRows(Engine& engine, size_t first, size_t count)
      : logits_(engine.model().logits(engine.compute(), first, count)),
        stride_(engine.model().logits_stride()),
        vocabulary_(engine.config().vocabulary) {}
  std::span<const float> row(size_t i) const { return logits_.subspan(i * stride_, vocabulary_); }

 private:
  std::span<const float> logits_;
  size_t stride_, vocabulary_;
};

}  // namespace

Result<std::vector<TokenId>> evaluate_logits(Engine& engine, const LogitsRequest& request) {
  TRY(check_tokens(engine, request.tokens));
  TRY(check_positions(request.positions, request.tokens.size()));
  if (request.tokens.size() + request.greedy > engine.context()) {
    return exhausted(std::to_string(request.tokens.size()) + " tokens and " +
                     std::to_string(request.greedy) + " to generate exceed the context of " +
                     std::to_string(engine.context()));
  }
  Feeder feeder(engine);
  const auto chunk = static_cast<size_t>(engine.options().chunk);
  const auto stopped = [&] { return request.cancelled && request.cancelled(); };
  const size_t n = request.tokens.size();
  size_t next = 0;  // in positions
  TokenId best = 0;
  for (size_t first = 0; first < n; first += chunk) {
    if (stopped()) return cancelled("stopped");
    const size_t count = std::min(chunk, n - first);
    std::vector<uint32_t> outputs;
    size_t wanted = 0;
    while (next + wanted < request.positions.size() &&
           request.positions[next + wanted] < first + count) {
      outputs.push_back(request.positions[next + wanted] - static_cast<uint32_t>(first));
      ++wanted;
    }
    const bool last = first + count == n;
    const bool for_greedy = last && request.greedy > 0;
    const auto last_row = static_cast<uint32_t>(count - 1);
    if (for_greedy && (outputs.empty() || outputs.back() != last_row)) outputs.push_back(last_row);
    const size_t last_output = outputs.size() - 1;
    TRY(feeder.feed(request.tokens.subspan(first, count), std::move(outputs)));
    for (size_t i = 0; i < wanted; ++i) {
      if (stopped()) return cancelled("stopped");
      TRY(request.row(next + i, feeder.logits(i)));
    }
    if (for_greedy) best = best_token(feeder.logits(last_output));
    next += wanted;
  }
  std::vector<TokenId> greedy;
  while (greedy.size() < request.greedy) {
    if (stopped()) return cancelled("stopped");
    greedy.push_back(best);
    if (greedy.size() == request.greedy) break;
    TRY(feeder.feed({&best, 1}, {0}));
    best = best_token(feeder.logits(0));
  }
  return greedy;
}

Result<KlReport> evaluate_kl(Engine& base, Engine& test, std::span<const TokenId> tokens,
                             size_t context, size_t chunks_max,
                             const std::function<void(size_t done, size_t total)>& progress) {
  TRY(check_tokens(base, tokens));
  TRY(check_text(tokens.size(), context, chunks_max));
  if (base.config().vocabulary != test.config().vocabulary) {
    return invalid_argument("the two models have different vocabularies");
  }
  const size_t chunks = std::min(chunks_max, tokens.size() / context);
  const size_t rows_max = std::min(base.model().rows_max(), test.model().rows_max());
  const size_t prompt_tokens = test.scheduler().evictor() != nullptr ? (context - 1) / 2 : 0;
  const size_t compared = context - 1 - prompt_tokens;
  std::vector<RowDistance> distances;
  distances.reserve(chunks * compared);
  for (size_t c = 0; c < chunks; ++c) {
    const auto text = tokens.subspan(c * context, context);
    Feeder base_feeder(base);
    Feeder test_feeder(test);
    size_t count = 0;
    for (size_t first = 0; first + 1 < context; first += count) {
      const bool prompt = first < prompt_tokens;
      count = std::min(rows_max, (prompt ? prompt_tokens : context - 1) - first);
      const std::vector<uint32_t> outputs = all_rows(prompt ? 0 : count);
      TRY(base_feeder.feed(text.subspan(first, count), outputs));
      TRY(test_feeder.feed(text.subspan(first, count), outputs));
      if (prompt && first + count == prompt_tokens) TRY(test_feeder.evict());
      for (size_t i = 0; i < outputs.size(); i += kLogitsRowsMax) {
        const size_t block = std::min(kLogitsRowsMax, count - i);
        const LogitsRows p(base, i, block);
        const LogitsRows q(test, i, block);
        const size_t at = distances.size();
        distances.resize(at + block);
        base.compute().pool().parallel_for(block, [&](size_t r, int) {
          distances[at + r] = compare_rows(p.row(r), q.row(r), text[first + i + r + 1]);
        });
        if (progress) progress(distances.size(), chunks * compared);
      }
    }
  }
  return summarise(distances);
}

Result<double> evaluate_cache_kl(Engine& engine, PagePool& base, PagePool& test,
                                 std::span<const TokenId> tokens, size_t scored_from) {
  TRY(check_tokens(engine, tokens));
  CHECK(scored_from + 1 < tokens.size());
  const size_t vocabulary = engine.config().vocabulary;
  const size_t rows_max = engine.model().rows_max();
  std::vector<float> kept(rows_max * vocabulary);  // of the base
  std::vector<RowDistance> distances;
  Feeder base_feeder(engine, base);
  Feeder test_feeder(engine, test);
  for (size_t first = 0; first + 1 < tokens.size(); first += rows_max) {
    const size_t count = std::min(rows_max, tokens.size() - 1 - first);
    const size_t skipped = std::min(count, scored_from - std::min(scored_from, first));
    std::vector<uint32_t> outputs;
    for (size_t i = skipped; i < count; ++i) outputs.push_back(static_cast<uint32_t>(i));
    const size_t scored = outputs.size();
    TRY(base_feeder.feed(tokens.subspan(first, count), outputs));
    for (size_t i = 0; i < scored; i += kLogitsRowsMax) {
      const size_t block = std::min(kLogitsRowsMax, scored - i);
      const LogitsRows rows(engine, i, block);
      for (size_t r = 0; r < block; ++r) {
        std::copy_n(rows.row(r).begin(), vocabulary,
                    kept.begin() + static_cast<long>((i + r) * vocabulary));
      }
    }
    TRY(test_feeder.feed(tokens.subspan(first, count), std::move(outputs)));
    for (size_t i = 0; i < scored; i += kLogitsRowsMax) {
      const size_t block = std::min(kLogitsRowsMax, scored - i);
      const LogitsRows rows(engine, i, block);
      const size_t at = distances.size();
      distances.resize(at + block);
      engine.compute().pool().parallel_for(block, [&](size_t r, int) {
        const std::span<const float> row =
            std::span(kept).subspan((i + r) * vocabulary, vocabulary);
        distances[at + r] = compare_rows(row, rows.row(r), tokens[first + skipped + i + r + 1]);
      });
    }
  }
  return summarise(distances).mean;
}

Result<PerplexityReport> evaluate_perplexity(
    Engine& engine, std::span<const TokenId> tokens, size_t context, size_t chunks_max,
    const std::function<void(size_t done, size_t total)>& progress) {
  TRY(check_tokens(engine, tokens));
  TRY(check_text(tokens.size(), context, chunks_max));
  const size_t chunks = std::min(chunks_max, tokens.size() / context);
  const size_t rows_max = engine.model().rows_max();
  std::vector<double> nll;
  for (size_t c = 0; c < chunks; ++c) {
    const auto text = tokens.subspan(c * context, context);
    Feeder feeder(engine);
    for (size_t first = 0; first + 1 < context; first += rows_max) {
      const size_t count = std::min(rows_max, context - 1 - first);
      TRY(feeder.feed(text.subspan(first, count), all_rows(count)));
      for (size_t i = 0; i < count; i += kLogitsRowsMax) {
        const size_t block = std::min(kLogitsRowsMax, count - i);
        const LogitsRows rows(engine, i, block);
        const size_t at = nll.size();
        nll.resize(at + block);
        engine.compute().pool().parallel_for(block, [&](size_t r, int) {
          const auto row = rows.row(r);
          const auto next = static_cast<size_t>(text[first + i + r + 1]);
          nll[at + r] = log_sum_exp(row) - static_cast<double>(row[next]);
        });
        if (progress) progress(nll.size(), chunks * (context - 1));
      }
    }
  }
  PerplexityReport report;
  report.tokens = nll.size();
  const auto n = static_cast<double>(nll.size());
  double mean = 0.0;
  for (double x : nll) mean += x / n;
  double squares = 0.0;
  for (double x : nll) squares += (x - mean) * (x - mean);
  report.perplexity = std::exp(mean);
  report.standard_error = report.perplexity * std::sqrt(squares / n / n);
  return report;
}

}  // namespace kvikk
