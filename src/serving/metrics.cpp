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

// What is counted of one model.
struct ModelMetrics {
  prometheus::Registry& registry;
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

  ModelMetrics(prometheus::Registry& all, const std::string& model)
      : registry(all), labels{{"model_name", model}} {}

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
  prometheus::Gauge& disk_blocks =
      gauge("kvikk:prefix_disk_blocks", "Blocks of 64 tokens that the disk holds");
  prometheus::Gauge& disk_bytes = gauge("kvikk:prefix_disk_bytes", "Bytes of those");
  prometheus::Gauge& disk_failed =
      gauge("kvikk:prefix_disk_failed", "1 when no more is written, because writing failed");
  prometheus::Counter& disk_read =
      counter("kvikk:prefix_disk_blocks_read_total", "Blocks that came back from the disk");
  prometheus::Counter& disk_written =
      counter("kvikk:prefix_disk_blocks_written_total", "Blocks that went to the disk");
  prometheus::Counter& disk_skipped = counter("kvikk:prefix_disk_blocks_skipped_total",
                                              "Blocks that the disk was too slow to take");
  prometheus::Gauge& leaked = gauge(
      "kvikk:kv_slabs_leaked", "Pages that nobody accounts for when nothing runs; a bug if not 0");
  prometheus::Gauge& loaded = gauge("kvikk:model_loaded", "1 while the model is in memory");
  prometheus::Counter& loads = counter("kvikk:model_loads_total", "How often it was loaded");
  prometheus::Gauge& memory =
      gauge("kvikk:model_memory_bytes", "Of weights and cache, while it is in memory");
  prometheus::Counter& steps = counter("kvikk:steps_total", "Steps of the engine");
  prometheus::Counter& prefill_rows =
      counter("kvikk:prefill_rows_total", "Rows of prompts that were computed");
  prometheus::Counter& decode_rows =
      counter("kvikk:decode_rows_total", "Rows of answers that were computed");
  prometheus::Counter& repetitions = counter("kvikk:repetition_stops_total",
                                             "Answers that ended because they repeated themselves");
  prometheus::Counter& retries =
      counter("kvikk:repetition_retries_total", "Answers tried again because they did");
  prometheus::Counter& drafts = counter("vllm:spec_decode_num_drafts_total", "Drafts checked");
  prometheus::Counter& drafted =
      counter("vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts that were checked");
  prometheus::Counter& accepted =
      counter("vllm:spec_decode_num_accepted_tokens_total", "Tokens of drafts that were right");
};

void raise(prometheus::Counter& counter, uint64_t value) {
  counter.Increment(static_cast<double>(value) - counter.Value());
}

}  // namespace

struct Metrics::Parts {
  prometheus::Registry registry;
  std::vector<std::unique_ptr<ModelMetrics>> models;
  std::vector<size_t> cache_blocks;  // [models]; as cache_info says it
  prometheus::Family<prometheus::Gauge>& cache_info = prometheus::BuildGauge()
                                                          .Name("vllm:cache_config_info")
                                                          .Help("The size of the key-value cache")
                                                          .Register(registry);
  prometheus::Gauge& connections = prometheus::BuildGauge()
                                       .Name("kvikk:http_connections")
                                       .Help("Open connections")
                                       .Register(registry)
                                       .Add({});

  void set_cache_blocks(size_t model, size_t blocks);
};

// The size is in a label, so another size is another gauge.
void Metrics::Parts::set_cache_blocks(size_t model, size_t blocks) {
  if (cache_blocks[model] == blocks) return;
  const auto info = [&](size_t count) -> prometheus::Gauge& {
    prometheus::Labels labels = models[model]->labels;
    labels["block_size"] = std::to_string(kPageTokens);
    labels["num_gpu_blocks"] = std::to_string(count);  // as routers call it
    return cache_info.Add(labels);
  };
  if (cache_blocks[model] > 0) cache_info.Remove(&info(cache_blocks[model]));
  cache_blocks[model] = blocks;
  info(blocks).Set(1);
}

Metrics::Metrics(const std::vector<std::string>& models) : parts_(std::make_unique<Parts>()) {
  for (const std::string& model : models) {
    parts_->models.push_back(std::make_unique<ModelMetrics>(parts_->registry, model));
  }
  parts_->cache_blocks.assign(models.size(), 0);
}

Metrics::~Metrics() = default;

void Metrics::count(size_t model, const GenerationReport& report) {
  ModelMetrics& m = *parts_->models[model];
  prometheus::Labels labels = m.labels;
  labels["status"] = std::to_string(report.status);
  m.responses.Add(labels).Increment();
  if (report.first_token_seconds >= 0) m.first_token.Observe(report.first_token_seconds);
  for (const double seconds : report.between_seconds) m.between.Observe(seconds);
  if (report.status == 200) m.request.Observe(report.seconds);
  for (const Answer& c : report.choices) {
    m.prompt_tokens.Increment(static_cast<double>(c.prompt_tokens));
    m.answer_tokens.Increment(static_cast<double>(c.tokens.size()));
    m.cache_queries.Increment(static_cast<double>(c.prompt_tokens));
    m.cache_hits.Increment(static_cast<double>(c.cached_tokens));
    m.repetitions.Increment(c.repeated ? 1 : 0);
    m.retries.Increment(c.retries);
    if (report.status != 200) continue;
    prometheus::Labels reason = m.labels;
    reason["finished_reason"] = finish_reason_name(c.reason);
    m.success.Add(reason).Increment();
  }
}

std::string Metrics::text(std::span<const ModelStatus> models, size_t connections) {
  for (size_t i = 0; i < models.size(); ++i) {
    const ModelStatus& now = models[i];
    ModelMetrics& m = *parts_->models[i];
    m.running.Set(static_cast<double>(now.load.running));
    m.waiting.Set(static_cast<double>(now.load.waiting));
    m.usage.Set(now.load.cache_used);
    m.blocks.Set(static_cast<double>(now.load.cached_blocks));
    m.leaked.Set(static_cast<double>(now.load.leaked_slabs));
    m.disk_blocks.Set(static_cast<double>(now.load.disk.blocks));
    m.disk_bytes.Set(static_cast<double>(now.load.disk.bytes));
    m.disk_failed.Set(now.load.disk.error.empty() ? 0 : 1);
    raise(m.disk_read, now.load.disk.read);
    raise(m.disk_written, now.load.disk.written);
    raise(m.disk_skipped, now.load.disk.skipped);
    m.loaded.Set(now.loaded ? 1 : 0);
    m.memory.Set(static_cast<double>(now.memory_bytes));
    raise(m.loads, now.loads);
    raise(m.steps, now.load.stats.steps);
    raise(m.prefill_rows, now.load.stats.prefill_rows);
    raise(m.decode_rows, now.load.stats.decode_rows);
    raise(m.drafts, now.load.speculation.drafts);
    raise(m.drafted, now.load.speculation.drafted);
    raise(m.accepted, now.load.speculation.accepted);
    parts_->set_cache_blocks(i, now.cache_blocks);
  }
  parts_->connections.Set(static_cast<double>(connections));
  return prometheus::TextSerializer().Serialize(parts_->registry.Collect());
}

}  // namespace kvikk
