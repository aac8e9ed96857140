#include "models/tensor_loader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/check.h"
#include "weights/pack.h"
#include "weights/tensor_rows.h"

namespace kvikk {

namespace {

constexpr size_t kMatrixAlign = 4096;

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return "[" + text + "]";
}

std::string_view without_first_part(std::string_view name) {
  return name.substr(name.find('.') + 1);
}

size_t align(size_t at) { return (at + kMatrixAlign - 1) / kMatrixAlign * kMatrixAlign; }

}  // namespace

TensorLoader::TensorLoader(const TensorSource& source, LoadOptions options,
                           const TensorNames& names)
    : source_(source), options_(std::move(options)), names_(names) {
  const std::string embedding = names.embedding + std::string(".weight");
  without_module_ = source.find_tensor(embedding) == nullptr &&
                    source.find_tensor(without_first_part(embedding)) != nullptr;
}

const StoredTensor* TensorLoader::lookup(const std::string& name) const {
  const StoredTensor* tensor = source_.find_tensor(name);
  if (tensor != nullptr || !without_module_) return tensor;
  return source_.find_tensor(without_first_part(name));
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
  return add(name, {inputs, outputs}, {nullptr, RowChoice::all(outputs), false, &out}, outputs);
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
  job.matrix->format = panel_format_of(packed_type(*job.tensor));
  job.matrix->outputs = outputs;
  job.matrix->inputs = static_cast<size_t>(shape[job.transposed ? 1 : 0]);
  jobs_.push_back(job);
  return ok_status();
}

DType TensorLoader::packed_type(const StoredTensor& tensor) const {
  return options_.exact ? DType::kF32 : stored_row_type(tensor);
}

void TensorLoader::ignore(const std::string& name) {
  if (const StoredTensor* tensor = lookup(name)) used_.insert(tensor->name);
}

Status TensorLoader::refuse_unknown() const {
  const auto ignored = [&](std::string_view name) {
    return std::any_of(names_.ignored.begin(), names_.ignored.end(),
                       [&](const char* end) { return end != nullptr && name.ends_with(end); });
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
    file_bytes += job.tensor->bytes.size();
  }
  TRY_ASSIGN(memory, Buffer::allocate(total));
  size_t at = 0;
  uint64_t done = 0;
  for (const Job& job : jobs_) {
    at = align(at);
    TRY(pack_matrix(pool, job, memory.data() + at));
    at += job.matrix->bytes();
    done += job.tensor->bytes.size();
    if (options_.progress) options_.progress(done, file_bytes);
  }
  return ok_status();
}

Status TensorLoader::pack_matrix(ThreadPool& pool, const Job& job, uint8_t* panels) {
  Matrix& matrix = *job.matrix;
  matrix.panels = panels;
  std::atomic<bool> finite{true};
  pool.parallel_for(matrix.panel_count(), [&](size_t p, int) {
    if (!pack_one_panel(job, p, panels + p * matrix.panel_bytes())) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite.load()) {
    TRY(source_.validate_blocks(*job.tensor, 0, job.tensor->elements()));
    return damaged(source_.path() + ": tensor '" + job.tensor->name +
                   "' holds values that overflow float32");
  }
  source_.drop(*job.tensor);
  return ok_status();
}

bool TensorLoader::pack_one_panel(const Job& job, size_t panel, uint8_t* target) const {
  PanelRows rows;
  rows.tensor = job.tensor;
  rows.transposed = job.transposed;
  for (size_t lane = 0; lane < kPanelRows; ++lane) {
    const size_t output = panel * kPanelRows + lane;
    const bool padding = output >= job.matrix->outputs;
    rows.rows[lane] = padding ? -1 : static_cast<int64_t>(job.rows.row(output));
  }
  return pack_rows(rows, packed_type(*job.tensor), target);
}

}  // namespace kvikk
