#include "serving/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "kv/prefix_tree.h"

namespace kvikk {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

Buckets first_token_buckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
Buckets between_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
          0.2,   0.3,    0.4,   0.5,  0.75,  1,    2.5,   5,   10};
}
Buckets request_buckets() {
  return {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 960};
}

}  // namespace

struct Metrics::Parts {
  prometheus::Registry registry;
  prometheus::Labels labels;

  prometheus::Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  prometheus::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  explicit Parts(const std::string& model) : labels{{"model_name", model}} {}

  prometheus::Gauge& running = gauge("vllm:num_requests_running", "Requests that are computed");
  prometheus::Gauge& waiting = gauge("vllm:num_requests_waiting", "Requests that wait");
  prometheus::Gauge& usage = gauge("vllm:kv_cache_usage_perc",
                                   "Part of the key-value cache set aside for what runs, 0 to 1");
  prometheus::Histogram& first_token =
      histogram("vllm:time_to_first_token_seconds", "From a request to its first token",
                first_token_buckets());
  prometheus::Histogram& between = histogram("vllm:inter_token_latency_seconds",
                                             "From each token to the next", between_buckets());
  prometheus::Histogram& request =
      histogram("vllm:e2e_request_latency_seconds", "From a request to the end of its answer",
                request_buckets());
  prometheus::Counter& prompt_tokens = counter("vllm:prompt_tokens_total", "Tokens of prompts");
  prometheus::Counter& answer_tokens = counter("vllm:generation_tokens_total", "Tokens of answers");
  prometheus::Counter& cache_queries =
      counter("vllm:prefix_cache_queries_total", "Tokens of prompts, looked up in the cache");
  prometheus::Counter& cache_hits =
      counter("vllm:prefix_cache_hits_total", "Tokens of prompts that the cache held");
  prometheus::Family<prometheus::Counter>& success = prometheus::BuildCounter()
                                                         .Name("vllm:request_success_total")
                                                         .Help("Answers by what ended them")
                                                         .Register(registry);
  prometheus::Family<prometheus::Counter>& responses =
      prometheus::BuildCounter()
          .Name("kvikk:requests_total")
          .Help("Requests by their HTTP status; 499: the client went away")
          .Register(registry);
  prometheus::Gauge& blocks =
      gauge("kvikk:prefix_cache_blocks", "Blocks of 64 tokens in the prefix cache");
  prometheus::Gauge& leaked = gauge(
      "kvikk:kv_slabs_leaked", "Pages that nobody accounts for when nothing runs; a bug if not 0");
  prometheus::Gauge& connections = gauge("kvikk:http_connections", "Open connections");
  prometheus::Counter& steps = counter("kvikk:steps_total", "Steps of the engine");
  prometheus::Counter& prefill_rows =
      counter("kvikk:prefill_rows_total", "Rows of prompts that were computed");
  prometheus::Counter& decode_rows =
      counter("kvikk:decode_rows_total", "Rows of answers that were computed");
  prometheus::Counter& drafts = counter("vllm:spec_decode_num_drafts_total", "Drafts checked");
  prometheus::Counter& drafted =
      counter("vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts that were checked");
  prometheus::Counter& accepted =
      counter("vllm:spec_decode_num_accepted_tokens_total", "Tokens of drafts that were right");
};

Metrics::Metrics(const std::string& model, size_t blocks) : parts_(std::make_unique<Parts>(model)) {
  prometheus::Labels info = parts_->labels;
  info["block_size"] = std::to_string(kPageTokens);
  info["num_gpu_blocks"] = std::to_string(blocks);  // as routers call it
  prometheus::BuildGauge()
      .Name("vllm:cache_config_info")
      .Help("The size of the key-value cache")
      .Register(parts_->registry)
      .Add(info)
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::count(const GenerationReport& report) {
  Parts& p = *parts_;
  prometheus::Labels labels = p.labels;
  labels["status"] = std::to_string(report.status);
  p.responses.Add(labels).Increment();
  if (report.first_token_seconds >= 0) p.first_token.Observe(report.first_token_seconds);
  for (const double seconds : report.between_seconds) p.between.Observe(seconds);
  if (report.status == 200) p.request.Observe(report.seconds);
  for (const Completion& c : report.choices) {
    p.prompt_tokens.Increment(static_cast<double>(c.prompt_tokens));
    p.answer_tokens.Increment(static_cast<double>(c.tokens.size()));
    p.cache_queries.Increment(static_cast<double>(c.prompt_tokens));
    p.cache_hits.Increment(static_cast<double>(c.cached_tokens));
    if (report.status != 200) continue;
    prometheus::Labels reason = p.labels;
    reason["finished_reason"] = finish_reason_name(c.reason);
    p.success.Add(reason).Increment();
  }
}

std::string Metrics::text(const EngineLoad& load, size_t connections) {
  Parts& p = *parts_;
  p.running.Set(static_cast<double>(load.running));
  p.waiting.Set(static_cast<double>(load.waiting));
  p.usage.Set(load.cache_used);
  p.blocks.Set(static_cast<double>(load.cached_blocks));
  p.leaked.Set(static_cast<double>(load.leaked_slabs));
  p.connections.Set(static_cast<double>(connections));
  const auto raise = [](prometheus::Counter& counter, uint64_t value) {
    counter.Increment(static_cast<double>(value) - counter.Value());
  };
  raise(p.steps, load.stats.steps);
  raise(p.prefill_rows, load.stats.prefill_rows);
  raise(p.decode_rows, load.stats.decode_rows);
  raise(p.drafts, load.speculation.drafts);
  raise(p.drafted, load.speculation.drafted);
  raise(p.accepted, load.speculation.accepted);
  return prometheus::TextSerializer().Serialize(p.registry.Collect());
}

}  // namespace kvikk
