#include "engine/choose_kv.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/files.h"
#include "base/mapped_file.h"
#include "engine/condition_keys.h"
#include "engine/evaluate.h"
#include "models/kv_coding.h"
#include "text/numbers.h"
#include "weights/panel_cache.h"

namespace kvikk {

namespace {

constexpr const char* kCandidates[] = {"turbo3", "fit3", "turbo4", "fit4", "q8/turbo4", "q8"};
constexpr size_t kHistoryTokens = 768;  // of the calibration text, before the probe
constexpr size_t kProbeTokensMax = 768;
constexpr size_t kProbeTokensMin = 256;  // fewer say nothing
constexpr int32_t kProbeChunk = 64;      // their logits are held
constexpr char kEnding[] = ".kvauto";
constexpr size_t kFilesMax = 32;  // that a folder keeps
constexpr size_t kFileBytesMax = size_t{1} << 16;
constexpr char kHead[] = "kvikk auto 1";

struct ProbeText {
  std::vector<TokenId> tokens;
  size_t scored_from = 0;
};

ProbeText probe_tokens(const Tokenizer& tokenizer) {
  ProbeText probe;
  if (tokenizer.adds_bos() && tokenizer.bos().has_value()) {
    probe.tokens.push_back(*tokenizer.bos());
  }
  const auto append = [&](std::string_view text, size_t most) {
    const std::vector<TokenId> tokens = tokenizer.encode(text, {});
    probe.tokens.insert(probe.tokens.end(), tokens.begin(),
                        tokens.begin() + static_cast<long>(std::min(tokens.size(), most)));
  };
  append(calibration_text(), kHistoryTokens);
  probe.scored_from = probe.tokens.size();
  append(probe_text(), kProbeTokensMax);
  return probe;
}

// Lines "name bytes kl"; what cannot be read is measured again.
std::vector<KvMeasure> read_measures(const std::string& path, const std::string& key) {
  std::vector<KvMeasure> all;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return all;
  const auto file = MappedFile::open(path);
  if (!file.ok() || file->bytes().size() > kFileBytesMax) return all;
  const std::string text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kHead + (" " + key)) return all;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    KvMeasure measure;
    words >> measure.kv >> measure.bytes_per_token >> measure.mean_kl;
    if (words.fail() || measure.bytes_per_token == 0) return {};
    all.push_back(std::move(measure));
  }
  return all;
}

void keep_measures(const std::string& path, const std::string& key,
                   const std::vector<KvMeasure>& all) {
  std::string text = kHead + (" " + key) + "\n";
  for (const KvMeasure& measure : all) {
    char kl[32];
    const auto end = std::to_chars(kl, kl + sizeof kl, measure.mean_kl).ptr;
    text += measure.kv + " " + std::to_string(measure.bytes_per_token) + " " +
            std::string(kl, end) + "\n";
  }
  const std::string folder = std::filesystem::path(path).parent_path();
  // What cannot be kept is measured again at the next start.
  if (!make_folders(folder).ok() || !write_file_atomically(path, bytes_of(text)).ok()) return;
  keep_newest(folder, kEnding, kFilesMax);
}

// A model that runs coded caches, and what to ask it.
class Probe {
 public:
  Probe(const EngineOptions& options) : options_(options) {}

  // Errors: those of loading; kUnsupported (no coded cache fits, or nothing to measure with).
  Status load(const ModelFile& file) {
    EngineOptions options = options_;
    options.kv = kCandidates[std::size(kCandidates) - 1];
    options.parallel = 1;
    options.chunk = kProbeChunk;
    options.kv_memory_mib = 0;
    options.spec.clear();
    options.context =
        static_cast<int32_t>(std::min(file.config.context, kHistoryTokens + kProbeTokensMax + 1));
    TRY_ASSIGN(engine_, Engine::load(file, options));
    TRY_ASSIGN(tokenizer_, engine_->tokenizer());
    text_ = probe_tokens(*tokenizer_);
    const size_t most = static_cast<size_t>(options.context);
    text_.tokens.resize(std::min(text_.tokens.size(), most));
    if (text_.tokens.size() < text_.scored_from + kProbeTokensMin) {
      return unsupported("its context is too short to measure a cache");
    }
    return ok_status();
  }

  // Errors: kInvalidArgument, kUnsupported (the codec does not fit), kExhausted, kDamaged.
  Result<KvMeasure> measure(const char* name) {
    Model& model = engine_->model();
    const ModelConfig& config = model.config();
    const KvFormat exact = options_.exact ? KvFormat::kF32 : KvFormat::kBF16;
    TRY_ASSIGN(const KvChoice choice, parse_kv(name, exact));
    TRY_ASSIGN(auto coder, make_kv_coder(config, choice, engine_->context()));
    TRY_ASSIGN(auto conditioning,
               condition_keys(model, engine_->compute(), *engine_->file().tensors, tokenizer_,
                              {choice, engine_->context(), options_.weights, options_.cache_dir}));
    if (!conditioning.empty()) coder = coder->conditioned(std::move(conditioning));
    TRY_ASSIGN(PagePool test, pool(Model::kv_shape(config, exact, coder)));
    TRY_ASSIGN(PagePool base, pool(Model::kv_shape(config, exact)));
    TRY_ASSIGN(const double kl,
               evaluate_cache_kl(*engine_, base, test, text_.tokens, text_.scored_from));
    return KvMeasure{name, test.shape().bytes_per_token(), kl};
  }

 private:
  Result<PagePool> pool(const KvShape& shape) const {
    std::vector<size_t> slabs;
    for (size_t g = 0; g < shape.groups.size(); ++g) {
      slabs.push_back(shape.sequence_slabs(g, text_.tokens.size(), kProbeChunk) + 1);
    }
    return PagePool::create(shape, slabs);
  }

  const EngineOptions& options_;
  std::unique_ptr<Engine> engine_;
  const Tokenizer* tokenizer_ = nullptr;
  ProbeText text_;
};

}  // namespace

KvDecision decide_kv(const std::vector<KvMeasure>& measured, double budget, size_t exact_bytes) {
  const KvMeasure* best = nullptr;
  for (const KvMeasure& measure : measured) {
    if (measure.mean_kl <= budget) {
      return {
          measure.kv,
          fixed_text(
              static_cast<double>(exact_bytes) / static_cast<double>(measure.bytes_per_token), 1) +
              " times smaller than the exact one; mean KL " + fixed_text(measure.mean_kl, 5) +
              " of " + fixed_text(budget, 5) + " allowed"};
    }
    if (best == nullptr || measure.mean_kl < best->mean_kl) best = &measure;
  }
  if (best == nullptr) return {"", "no coded cache fits this model"};
  return {"", "the truest coded one, " + best->kv + ", has a mean KL of " +
                  fixed_text(best->mean_kl, 5) + "; " + fixed_text(budget, 5) + " are allowed"};
}

Result<KvDecision> choose_kv(const ModelFile& file, const EngineOptions& options) {
  const std::string_view texts[] = {calibration_text(), probe_text()};
  std::string recipe = "kv auto 1 weights " + options.weights + (options.exact ? " exact" : "");
  for (const std::string_view text : texts) {
    recipe += " " + std::to_string(XXH3_64bits(text.data(), text.size()));
  }
  const std::string key = panel_cache_key(*file.tensors, recipe + " " + options.cpu_level);
  const std::string path = options.cache_dir + "/cache/" + key + kEnding;
  const double budget = static_cast<double>(options.kv_budget_kl);
  std::vector<KvMeasure> all;
  if (!options.cache_dir.empty()) all = read_measures(path, key);
  const size_t kept = all.size();
  const KvFormat exact = options.exact ? KvFormat::kF32 : KvFormat::kBF16;
  const size_t exact_bytes = Model::kv_shape(file.config, exact).bytes_per_token();
  Probe probe(options);
  bool loaded = false;
  for (const char* name : kCandidates) {
    if (!decide_kv(all, budget, exact_bytes).kv.empty()) break;
    const auto same = [&](const KvMeasure& measure) { return measure.kv == name; };
    if (std::any_of(all.begin(), all.end(), same)) continue;
    if (!loaded) {
      const Status status = probe.load(file);
      if (status.code() == StatusCode::kUnsupported) return KvDecision{"", status.message()};
      TRY(status);
      loaded = true;
    }
    Result<KvMeasure> measure = probe.measure(name);
    const StatusCode code = measure.status().code();
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kUnsupported) continue;
    TRY(measure.status());
    all.push_back(std::move(*measure));
  }
  if (!options.cache_dir.empty() && all.size() > kept) keep_measures(path, key, all);
  return decide_kv(all, budget, exact_bytes);
}

}  // namespace kvikk
