#include "models/tensor_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "base/check.h"
#include "weights/block_quantizer.h"
#include "weights/pack.h"
#include "weights/panel_cache.h"
#include "weights/tensor_rows.h"

namespace kvikk {

namespace {

constexpr size_t kMatrixAlign = 4096;
// Of panels, after which the file's pages are given back: a large tensor never fills memory twice.
constexpr size_t kSliceBytes = size_t{16} << 20;

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return "[" + text + "]";
}

std::string_view without_first_part(std::string_view name) {
  return name.substr(name.find('.') + 1);
}

// What stands for the module "model" in a model of more than text; its other tensors belong to
// parts that see or hear. The head is beside the module.
constexpr std::string_view kNestedModules[] = {"language_model.model.", "model.language_model.",
                                               "model.text_model."};

bool is_nested(std::string_view module) {
  return std::ranges::find(kNestedModules, module) != std::end(kNestedModules);
}

bool is_of_text(std::string_view tensor) {
  return tensor.starts_with("lm_head.") || tensor.starts_with("language_model.") ||
         tensor.starts_with(kNestedModules[1]) || tensor.starts_with(kNestedModules[2]);
}

// BERT's first checkpoints came from TensorFlow.
constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {
    {".LayerNorm.weight", ".LayerNorm.gamma"},
    {".LayerNorm.bias", ".LayerNorm.beta"},
};

size_t align(size_t at) { return (at + kMatrixAlign - 1) / kMatrixAlign * kMatrixAlign; }

}  // namespace

std::string at_layer(const char* name, size_t layer, size_t part) {
  std::string text(name);
  for (const auto& [mark, number] : {std::pair('#', layer), std::pair('@', part)}) {
    const size_t at = text.find(mark);
    if (at != std::string::npos) text.replace(at, 1, std::to_string(number));
  }
  return text;
}

bool is_one_by_one(std::string_view name) { return name.find('@') != std::string_view::npos; }

uint64_t TensorLoader::bytes_of(const Job& job) {
  const double part = static_cast<double>(job.matrix->outputs) *
                      static_cast<double>(job.matrix->inputs) /
                      static_cast<double>(job.tensor->elements());
  return static_cast<uint64_t>(static_cast<double>(job.tensor->bytes.size()) * part);
}

TensorLoader::TensorLoader(const TensorSource& source, LoadOptions options,
                           const TensorNames& names)
    : source_(source), options_(std::move(options)), names_(names) {
  const std::string embedding = names.embedding + std::string(".weight");
  if (source.find_tensor(embedding) != nullptr) return;
  std::vector<std::string_view> modules = {"", "roberta."};  // files leave it out, or nest
  modules.insert(modules.end(), std::begin(kNestedModules), std::end(kNestedModules));
  for (const std::string_view module : modules) {
    const std::string other = std::string(module).append(without_first_part(embedding));
    if (source.find_tensor(other) == nullptr) continue;
    module_ = module;
    return;
  }
}

const StoredTensor* TensorLoader::lookup(const std::string& name) const {
  const StoredTensor* tensor = lookup_exactly(name);
  if (tensor != nullptr) return tensor;
  for (const auto& [ours, old] : kOldNames) {
    if (!name.ends_with(ours)) continue;
    return lookup_exactly(name.substr(0, name.size() - ours.size()).append(old));
  }
  return nullptr;
}

const StoredTensor* TensorLoader::lookup_exactly(const std::string& name) const {
  const StoredTensor* tensor = source_.find_tensor(name);
  if (tensor != nullptr || !module_.has_value()) return tensor;
  tensor = source_.find_tensor(*module_ + std::string(without_first_part(name)));
  if (tensor != nullptr || *module_ != kNestedModules[0]) return tensor;
  return source_.find_tensor("language_model." + name);
}

Result<const StoredTensor*> TensorLoader::find(const std::string& name,
                                               const std::vector<uint64_t>& shape) {
  const StoredTensor* tensor = lookup(name);
  if (tensor == nullptr) {
    return damaged(source_.path() + ": tensor '" + name + "' of shape " + shape_text(shape) +
                   " is missing");
  }
  if (tensor->shape != shape) {
    return damaged(source_.path() + ": tensor '" + tensor->name + "' has shape " +
                   shape_text(tensor->shape) + "; the configuration asks for " + shape_text(shape));
  }
  used_.insert(tensor->name);
  return tensor;
}

Status TensorLoader::vector(const std::string& name, const RowChoice& rows, size_t n,
                            std::vector<float>& out, const std::vector<uint64_t>& shape) {
  const std::vector<uint64_t> flat = {rows.tensor_rows};
  TRY_ASSIGN(const StoredTensor* tensor, find(name, shape.empty() ? flat : shape));
  TRY(source_.validate_blocks(*tensor, 0, rows.tensor_rows));
  std::vector<float> all(rows.tensor_rows);
  if (!is_readable(*tensor)) {
    return unsupported(source_.path() + ": tensor '" + tensor->name + "' has elements of type " +
                       dtype_info(tensor->type).name + "; weights cannot be read from that");
  }
  const size_t width = tensor->shape[0];
  for (size_t row = 0; row < all.size() / width; ++row) {
    read_row(*tensor, row, all.data() + row * width);
  }
  out.resize(n);
  for (size_t i = 0; i < n; ++i) out[i] = all[rows.row(i)];
  return ok_status();
}

Status TensorLoader::matrix(const std::string& name, const RowChoice& rows, size_t outputs,
                            size_t inputs, Matrix& out) {
  if (!names_.transposed)
    return add(name, {inputs, rows.tensor_rows}, {nullptr, rows, false, &out}, outputs);
  return add(name, {rows.tensor_rows, inputs}, {nullptr, rows, true, &out}, outputs);
}

Status TensorLoader::table_matrix(const std::string& name, size_t outputs, size_t inputs,
                                  Matrix& out) {
  return add(name, {inputs, outputs}, {nullptr, RowChoice::all(outputs), false, &out, true},
             outputs);
}

Status TensorLoader::float_matrix(const std::string& name, const RowChoice& rows, size_t outputs,
                                  size_t inputs, Matrix& out) {
  Job job = {nullptr, rows, false, &out};
  job.float32 = true;
  return add(name, {inputs, rows.tensor_rows}, job, outputs);
}

Status TensorLoader::stacked_matrix(const std::string& name, const Stack& stack,
                                    const RowChoice& rows, size_t outputs, size_t inputs,
                                    Matrix& out, bool float32) {
  const bool plain = lookup(name + ".weight") == nullptr;
  const std::string stored = plain ? name : name + ".weight";
  const StoredTensor* tensor = lookup(stored);
  Job job = {nullptr, rows, stack.transposed, &out};
  if (tensor != nullptr && tensor->type == DType::kF4_E2M1) job.transposed = false;
  job.first_row = stack.index * rows.tensor_rows;
  job.float32 = float32;
  const std::vector<uint64_t> shape =
      job.transposed ? std::vector<uint64_t>{rows.tensor_rows, inputs, stack.count}
                     : std::vector<uint64_t>{inputs, rows.tensor_rows, stack.count};
  return add(stored, shape, job, outputs);
}

Status TensorLoader::stacked_vector(const std::string& name, const Stack& stack,
                                    const RowChoice& rows, size_t n, std::vector<float>& out) {
  const bool dotted = lookup(name + ".bias") != nullptr;
  RowChoice all = rows;
  all.first += stack.index * rows.tensor_rows;
  all.tensor_rows *= stack.count;
  return vector(name + (dotted ? ".bias" : "_bias"), all, n, out, {rows.tensor_rows, stack.count});
}

Status TensorLoader::turned_rows(const std::string& name, size_t tensor_rows, size_t first_row,
                                 size_t outputs, size_t inputs, Matrix& out) {
  Job job = {nullptr, RowChoice::all(outputs), false, &out};
  job.first_row = first_row;
  job.float32 = true;
  job.turned = true;
  TRY(add(name, {outputs, tensor_rows}, job, outputs));
  out.inputs = inputs;
  return ok_status();
}

Status TensorLoader::row(const std::string& name, size_t n, std::vector<float>& out) {
  const StoredTensor* tensor = lookup(name);
  const bool matrix = tensor != nullptr && tensor->shape.size() == 2;
  return vector(name, RowChoice::all(n), n, out,
                matrix ? std::vector<uint64_t>{n, 1} : std::vector<uint64_t>{});
}

void TensorLoader::ignore_layers(const char* name, size_t first, size_t count) {
  const std::string_view text(name);
  const std::string prefix(text.substr(0, text.find('.', text.find('#')) + 1));
  for (size_t layer = first; layer < first + count; ++layer) {
    const std::string start = at_layer(prefix.c_str(), layer);
    for (const StoredTensor& tensor : source_.tensors()) {
      if (tensor.name.starts_with(start)) used_.insert(tensor.name);
    }
  }
}

Status TensorLoader::add(const std::string& name, const std::vector<uint64_t>& shape, Job job,
                         size_t outputs) {
  TRY_ASSIGN(job.tensor, find(name, shape));
  const DTypeInfo& type = dtype_info(job.tensor->type);
  if (!is_readable(*job.tensor)) {
    return unsupported(source_.path() + ": tensor '" + job.tensor->name +
                       "' has elements of type " + type.name +
                       ", or lacks its scales; weights cannot be read from that");
  }
  if (job.transposed && type.block_elements != 1) {
    return unsupported(source_.path() + ": tensor '" + job.tensor->name + "' of type " + type.name +
                       " is stored by columns; only F32, F16 and BF16 can be");
  }
  job.matrix->outputs = outputs;
  job.matrix->inputs = static_cast<size_t>(shape[job.transposed ? 1 : 0]);
  job.matrix->format = panel_format_of(packed_type(job));
  jobs_.push_back(job);
  return ok_status();
}

DType TensorLoader::packed_type(const Job& job) const {
  if (options_.exact || job.float32) return DType::kF32;
  const DType stored = stored_row_type(*job.tensor);
  const bool is_float = dtype_info(stored).block_elements == 1;
  if (!options_.weights || !is_float) return stored;
  // The head has a say in every token: 8 bit where the others have 4.
  const DType wanted = job.table ? DType::kQ8_0 : *options_.weights;
  return fitting_type(wanted, job.matrix->inputs).value_or(stored);
}

bool TensorLoader::is_quantized(const Job& job) const {
  return packed_type(job) != stored_row_type(*job.tensor) && !options_.exact && !job.float32;
}

std::string TensorLoader::recipe() const {
  std::string text;
  for (const Job& job : jobs_) {
    const RowChoice& rows = job.rows;
    text += job.tensor->name + " " + dtype_info(packed_type(job)).name;
    for (const size_t n : {rows.tensor_rows, rows.first, rows.block, rows.stride, job.first_row,
                           job.matrix->outputs, job.matrix->inputs}) {
      text += " " + std::to_string(n);
    }
    text += std::string(job.transposed ? " transposed" : "") + (job.turned ? " turned\n" : "\n");
  }
  return text;
}

void TensorLoader::ignore(const std::string& name) {
  if (const StoredTensor* tensor = lookup(name)) used_.insert(tensor->name);
}

Status TensorLoader::refuse_unknown() const {
  const bool nested = module_.has_value() && is_nested(*module_);
  const auto ignored = [&](std::string_view name) {
    if (nested && !is_of_text(name)) return true;
    return std::any_of(names_.ignored.begin(), names_.ignored.end(), [&](const char* part) {
      if (part == nullptr) return false;
      const bool module = std::string_view(part).ends_with('.');
      return module ? name.starts_with(part) : name.ends_with(part);
    });
  };
  for (const StoredTensor& tensor : source_.tensors()) {
    if (used_.count(tensor.name) > 0 || ignored(tensor.name)) continue;
    return unsupported(source_.path() + ": tensor '" + tensor.name +
                       "' is not part of this architecture as it is known here; running without "
                       "it would give wrong answers");
  }
  return ok_status();
}

Status TensorLoader::validate(ThreadPool& pool, const StoredTensor& tensor) {
  const uint64_t width = tensor.shape[0];
  const uint64_t rows = tensor.elements() / width;
  constexpr uint64_t kRowsPerTask = 256;
  std::mutex mutex;
  Status status;
  pool.parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](size_t task, int) {
    const uint64_t first = task * kRowsPerTask;
    const uint64_t count = std::min(kRowsPerTask, rows - first);
    Status s = source_.validate_blocks(tensor, first * width, count * width);
    if (s.ok()) return;
    std::lock_guard lock(mutex);
    status = std::move(s);
  });
  source_.drop(tensor);
  return status;
}

Status TensorLoader::pack(ThreadPool& pool, Buffer& memory) {
  size_t total = 0;
  uint64_t file_bytes = 0;
  for (const Job& job : jobs_) {
    total = align(total) + job.matrix->bytes();
    file_bytes += bytes_of(job);
  }
  std::map<const StoredTensor*, size_t> jobs_left;  // a tensor may hold several matrices
  for (const Job& job : jobs_) ++jobs_left[job.tensor];
  TRY_ASSIGN(memory, Buffer::allocate(total));
  std::string key;
  if (!options_.cache_dir.empty() &&
      std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& job) { return is_quantized(job); })) {
    key = panel_cache_key(source_, recipe());
    const std::string path = panel_cache_path(options_.cache_dir, key);
    if (read_panel_cache(path, key, {memory.data(), total}, pool).ok()) {
      size_t panels = 0;
      for (const Job& job : jobs_) {
        job.matrix->panels = memory.data() + align(panels);
        panels = align(panels) + job.matrix->bytes();
      }
      return ok_status();
    }
  }
  size_t at = 0;
  uint64_t done = 0;
  for (const Job& job : jobs_) {
    at = align(at);
    TRY(pack_matrix(pool, job, memory.data() + at));
    at += job.matrix->bytes();
    if (--jobs_left[job.tensor] == 0) source_.drop(*job.tensor);
    done += bytes_of(job);
    if (options_.progress) options_.progress(done, file_bytes);
  }
  if (!key.empty()) {  // without it (a full disk, no right to write) the model runs as well
    (void)write_panel_cache(panel_cache_path(options_.cache_dir, key), key, {memory.data(), total},
                            pool);
  }
  return ok_status();
}

Status TensorLoader::pack_matrix(ThreadPool& pool, const Job& job, uint8_t* panels) {
  Matrix& matrix = *job.matrix;
  matrix.panels = panels;
  std::atomic<bool> finite{true};
  const size_t slice = std::max<size_t>(1, kSliceBytes / matrix.panel_bytes());
  for (size_t first = 0; first < matrix.panel_count(); first += slice) {
    const size_t count = std::min(slice, matrix.panel_count() - first);
    pool.parallel_for(count, [&](size_t i, int) {
      const size_t p = first + i;
      if (!pack_one_panel(job, p, panels + p * matrix.panel_bytes())) {
        finite.store(false, std::memory_order_relaxed);
      }
    });
    source_.drop(*job.tensor);
  }
  if (!finite.load()) {
    TRY(source_.validate_blocks(*job.tensor, 0, job.tensor->elements()));
    return damaged(source_.path() + ": tensor '" + job.tensor->name +
                   "' holds values that overflow float32");
  }
  return ok_status();
}

bool TensorLoader::pack_turned_panel(const Job& job, size_t panel, uint8_t* target) {
  const size_t inputs = job.matrix->inputs;
  std::vector<float> row(job.matrix->outputs);
  std::vector<float> columns(kPanelRows * inputs);
  const size_t first = panel * kPanelRows;
  const size_t lanes = std::min(kPanelRows, job.matrix->outputs - first);
  for (size_t i = 0; i < inputs; ++i) {
    read_row(*job.tensor, job.first_row + i, row.data());
    for (size_t lane = 0; lane < lanes; ++lane) columns[lane * inputs + i] = row[first + lane];
  }
  const uint8_t* rows[kPanelRows] = {};
  for (size_t lane = 0; lane < lanes; ++lane) {
    rows[lane] = reinterpret_cast<const uint8_t*>(columns.data() + lane * inputs);
  }
  return pack_panel(DType::kF32, rows, inputs, target);
}

bool TensorLoader::pack_one_panel(const Job& job, size_t panel, uint8_t* target) const {
  if (job.turned) return pack_turned_panel(job, panel, target);
  PanelRows rows;
  rows.tensor = job.tensor;
  rows.transposed = job.transposed;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    const size_t output = panel * kPanelRows + lane;
    const bool padding = output >= job.matrix->outputs;
    rows.rows[lane] = padding ? -1 : static_cast<int64_t>(job.first_row + job.rows.row(output));
  }
  return pack_rows(rows, packed_type(job), target);
}

}  // namespace kvikk
