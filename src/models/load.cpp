// Finds, checks and packs a decoder's tensors.

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "base/check.h"
#include "models/model.h"
#include "weights/block_formats.h"
#include "weights/pack.h"

namespace kvikk {

namespace {

constexpr size_t kMatrixAlign = 4096;

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (uint64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return "[" + text + "]";
}

class Loader {
 public:
  Loader(const GgufFile& file, ThreadPool& pool, const LoadOptions& options)
      : file_(file), pool_(pool), options_(options) {}

  // A tensor of exactly this shape (innermost first), or an error.
  Result<const StoredTensor*> find(const std::string& name, std::vector<uint64_t> shape) {
    const StoredTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      return damaged(file_.path() + ": tensor '" + name + "' of shape " + shape_text(shape) +
                     " is missing");
    }
    if (tensor->shape != shape) {
      return damaged(file_.path() + ": tensor '" + name + "' has shape " +
                     shape_text(tensor->shape) + "; the configuration asks for " +
                     shape_text(shape));
    }
    used_.insert(name);
    return tensor;
  }

  Status vector(const std::string& name, size_t n, std::vector<float>& out) {
    TRY_ASSIGN(const StoredTensor* tensor, find(name, {n}));
    TRY(file_.validate_blocks(*tensor, 0, n));
    out.resize(n);
    dequantize_row(tensor->type, tensor->bytes.data(), out.data(), n);
    return ok_status();
  }

  Status optional_vector(const std::string& name, size_t n, std::vector<float>& out) {
    return file_.find_tensor(name) == nullptr ? ok_status() : vector(name, n, out);
  }

  // Registers a matrix; its bytes follow in pack().
  Status matrix(const std::string& name, size_t outputs, size_t inputs, Matrix& out) {
    TRY_ASSIGN(const StoredTensor* tensor, find(name, {inputs, outputs}));
    out.format = options_.exact ? PanelFormat::kF32 : panel_format_of(tensor->type);
    out.outputs = outputs;
    out.inputs = inputs;
    jobs_.push_back({tensor, &out});
    return ok_status();
  }

  // A tensor that is not in the family means that this would be another model.
  Status refuse_unknown() {
    for (const StoredTensor& tensor : file_.tensors()) {
      if (used_.count(tensor.name) == 0) {
        return unsupported(file_.path() + ": tensor '" + tensor.name +
                           "' is not part of this architecture as it is known here; running "
                           "without it would give wrong answers");
      }
    }
    return ok_status();
  }

  // Reads every block of a tensor that stays in the file, so that a damaged one is found now.
  Status validate(const StoredTensor& tensor) {
    const uint64_t width = tensor.shape[0];
    const uint64_t rows = tensor.elements() / width;
    constexpr uint64_t kRowsPerTask = 256;
    std::mutex mutex;
    Status status;
    pool_.parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, int) {
      const uint64_t first = task * kRowsPerTask;
      const uint64_t count = std::min(kRowsPerTask, rows - first);
      Status s = file_.validate_blocks(tensor, first * width, count * width);
      if (s.ok()) return;
      std::lock_guard lock(mutex);
      status = std::move(s);
    });
    file_.drop(tensor);
    return status;
  }

  Status pack(Buffer& memory) {
    size_t total = 0;
    uint64_t file_bytes = 0;
    for (const Job& job : jobs_) {
      total = (total + kMatrixAlign - 1) / kMatrixAlign * kMatrixAlign + job.matrix->bytes();
      file_bytes += job.tensor->bytes.size();
    }
    TRY_ASSIGN(memory, Buffer::allocate(total));
    size_t at = 0;
    uint64_t done = 0;
    for (const Job& job : jobs_) {
      at = (at + kMatrixAlign - 1) / kMatrixAlign * kMatrixAlign;
      TRY(pack_matrix(job, memory.data() + at));
      at += job.matrix->bytes();
      done += job.tensor->bytes.size();
      if (options_.progress) options_.progress(done, file_bytes);
    }
    return ok_status();
  }

 private:
  struct Job {
    const StoredTensor* tensor;
    Matrix* matrix;
  };

  Status pack_matrix(const Job& job, uint8_t* panels) {
    Matrix& matrix = *job.matrix;
    matrix.panels = panels;
    const size_t row_size = row_bytes(job.tensor->type, matrix.inputs);
    std::atomic<bool> finite{true};
    pool_.parallel_for(matrix.panel_count(), [&](size_t p, int) {
      const uint8_t* rows[kPanelRows];
      for (size_t lane = 0; lane < kPanelRows; ++lane) {
        const size_t row = p * kPanelRows + lane;
        rows[lane] = row < matrix.outputs ? job.tensor->bytes.data() + row * row_size : nullptr;
      }
      uint8_t* panel = panels + p * matrix.panel_bytes();
      const bool ok = options_.exact ? pack_panel_f32(job.tensor->type, rows, matrix.inputs, panel)
                                     : pack_panel(job.tensor->type, rows, matrix.inputs, panel);
      if (!ok) finite.store(false, std::memory_order_relaxed);
    });
    if (!finite.load()) {
      TRY(file_.validate_blocks(*job.tensor, 0, job.tensor->elements()));
      return damaged(file_.path() + ": tensor '" + job.tensor->name +
                     "' holds values that overflow float32");
    }
    file_.drop(*job.tensor);
    return ok_status();
  }

  const GgufFile& file_;
  ThreadPool& pool_;
  const LoadOptions& options_;
  std::vector<Job> jobs_;
  std::set<std::string> used_;
};

Status load_layer(Loader& loader, const ModelConfig& c, size_t index, LayerWeights& w) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const size_t q_width = c.heads * c.head_dim;
  const size_t kv_width = c.kv_heads * c.head_dim;
  TRY(loader.vector(prefix + "attn_norm.weight", c.hidden, w.attention_norm));
  TRY(loader.matrix(prefix + "attn_q.weight", q_width, c.hidden, w.q));
  TRY(loader.matrix(prefix + "attn_k.weight", kv_width, c.hidden, w.k));
  TRY(loader.matrix(prefix + "attn_v.weight", kv_width, c.hidden, w.v));
  TRY(loader.matrix(prefix + "attn_output.weight", c.hidden, q_width, w.o));
  TRY(loader.optional_vector(prefix + "attn_q.bias", q_width, w.q_bias));
  TRY(loader.optional_vector(prefix + "attn_k.bias", kv_width, w.k_bias));
  TRY(loader.optional_vector(prefix + "attn_v.bias", kv_width, w.v_bias));
  if (c.qk_norm) {
    TRY(loader.vector(prefix + "attn_q_norm.weight", c.head_dim, w.q_norm));
    TRY(loader.vector(prefix + "attn_k_norm.weight", c.head_dim, w.k_norm));
  }
  if (c.post_norms) {
    TRY(loader.vector(prefix + "post_attention_norm.weight", c.hidden, w.post_attention_norm));
    TRY(loader.vector(prefix + "post_ffw_norm.weight", c.hidden, w.post_mlp_norm));
  }
  TRY(loader.vector(prefix + "ffn_norm.weight", c.hidden, w.mlp_norm));
  TRY(loader.matrix(prefix + "ffn_gate.weight", c.feed_forward, c.hidden, w.gate));
  TRY(loader.matrix(prefix + "ffn_up.weight", c.feed_forward, c.hidden, w.up));
  return loader.matrix(prefix + "ffn_down.weight", c.hidden, c.feed_forward, w.down);
}

// The vocabulary is the embedding's number of rows; keys that say otherwise lose.
Result<const StoredTensor*> find_embedding(const GgufFile& file, ModelConfig& config) {
  constexpr uint64_t kVocabularyMax = 1 << 24;
  const StoredTensor* tensor = file.find_tensor("token_embd.weight");
  if (tensor == nullptr) return damaged(file.path() + ": tensor 'token_embd.weight' is missing");
  if (tensor->shape.size() != 2 || tensor->shape[0] != config.hidden || tensor->shape[1] == 0 ||
      tensor->shape[1] > kVocabularyMax) {
    return damaged(file.path() + ": tensor 'token_embd.weight' has shape " +
                   shape_text(tensor->shape) + "; it must be [" + std::to_string(config.hidden) +
                   " x vocabulary], vocabulary at most " + std::to_string(kVocabularyMax));
  }
  config.vocabulary = static_cast<size_t>(tensor->shape[1]);
  return tensor;
}

}  // namespace

Result<ModelWeights> load_weights(const GgufFile& file, ModelConfig& config, ThreadPool& pool,
                                  const LoadOptions& options) {
  Loader loader(file, pool, options);
  ModelWeights weights;
  TRY_ASSIGN(weights.embedding, find_embedding(file, config));
  TRY_ASSIGN(weights.embedding,
             loader.find("token_embd.weight", {config.hidden, config.vocabulary}));
  // The number of layers is the file's claim until their tensors are seen: grow one at a time.
  for (size_t i = 0; i < config.layers; ++i) {
    if (file.find_tensor("blk." + std::to_string(i) + ".attn_norm.weight") == nullptr) {
      return damaged(file.path() + ": tensor 'blk." + std::to_string(i) +
                     ".attn_norm.weight' is missing; the configuration has " +
                     std::to_string(config.layers) + " layers");
    }
  }
  weights.layers.resize(config.layers);
  for (size_t i = 0; i < config.layers; ++i) {
    TRY(load_layer(loader, config, i, weights.layers[i]));
  }
  TRY(loader.vector("output_norm.weight", config.hidden, weights.output_norm));
  const bool tied = file.find_tensor("output.weight") == nullptr;
  TRY(loader.matrix(tied ? "token_embd.weight" : "output.weight", config.vocabulary, config.hidden,
                    weights.head));
  TRY(loader.optional_vector("rope_freqs.weight", config.rotary / 2, config.rope.divisors));
  for (float divisor : config.rope.divisors) {
    if (!(divisor > 0.0f)) {
      return damaged(file.path() +
                     ": tensor 'rope_freqs.weight' holds a divisor that is not "
                     "positive");
    }
  }
  TRY(loader.refuse_unknown());
  if (!tied) TRY(loader.validate(*weights.embedding));
  TRY(loader.pack(weights.memory));
  return weights;
}

}  // namespace kvikk
