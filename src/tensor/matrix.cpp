#include "tensor/matrix.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace kvikk {

namespace {

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Panels of one task. Decode is bound by memory: tasks large enough to stream, small enough that
// threads finish together. Prefill is bound by arithmetic: a pair of panels against all rows.
size_t task_panels(const Matrix& matrix, size_t rows, int threads) {
  constexpr size_t kTaskBytesMin = 16 * 1024;
  constexpr size_t kTaskBytesMax = 192 * 1024;
  constexpr size_t kStreams = 4;    // panels that a decode kernel reads side by side
  constexpr size_t kTileRows = 16;  // from here on kernels work in tiles
  if (rows >= kTileRows) return 2;
  const size_t share = matrix.bytes() / (static_cast<size_t>(threads) * 4);
  const size_t bytes = std::clamp(share, kTaskBytesMin, kTaskBytesMax);
  return std::max(kStreams, round_up(bytes / matrix.panel_bytes(), kStreams));
}

}  // namespace

size_t Matrix::panel_bytes() const {
  const PanelLayout& layout = kPanelLayouts[static_cast<size_t>(format)];
  return round_up(inputs, layout.unit_elements) / layout.unit_elements * layout.unit_bytes;
}

Result<std::unique_ptr<Compute>> Compute::create(const Kernels& kernels, int threads,
                                                 size_t inputs_max, size_t attend_rows_max,
                                                 size_t head_dim_max) {
  std::unique_ptr<Compute> compute(new Compute(kernels, threads));
  const size_t attend_bytes = attend_scratch_bytes(attend_rows_max, head_dim_max);
  compute->scratch_bytes_ =
      round_up(std::max(matmul_scratch_bytes(inputs_max), attend_bytes), 4096);
  TRY_ASSIGN(compute->scratch_,
             Buffer::allocate(compute->scratch_bytes_ * static_cast<size_t>(threads)));
  return compute;
}

Result<Activations> Activations::allocate(size_t rows_max, size_t k_max) {
  Activations a;
  const size_t groups = (k_max + kGroup - 1) / kGroup;
  TRY_ASSIGN(a.floats_, Buffer::allocate(rows_max * k_max * sizeof(float)));
  TRY_ASSIGN(a.codes_, Buffer::allocate(rows_max * groups * kGroup));
  TRY_ASSIGN(a.scales_, Buffer::allocate(rows_max * groups * sizeof(float)));
  TRY_ASSIGN(a.sums_, Buffer::allocate(rows_max * groups * 2 * sizeof(int32_t)));
  TRY_ASSIGN(a.weighted_sums_, Buffer::allocate(rows_max * groups * sizeof(float)));
  a.quantized_.codes = a.codes_.as<int8_t>();
  a.quantized_.scales = a.scales_.as<float>();
  a.quantized_.sums = a.sums_.as<int32_t>();
  a.quantized_.weighted_sums = a.weighted_sums_.as<float>();
  return a;
}

void Activations::shape(size_t rows, size_t k) {
  CHECK(rows * k * sizeof(float) <= floats_.size());
  rows_ = rows;
  k_ = k;
  quantized_.rows = rows;
  quantized_.groups = k / kGroup;
}

RowsView Activations::view(size_t first, size_t rows) const {
  CHECK(first % kRowBlock == 0 && first + rows <= rows_);
  const size_t at = first * quantized_.groups;
  RowsView view = {rows, k_, quantized_, floats() + first * k_, k_};
  view.quantized.rows = rows;
  view.quantized.codes += at * kGroup;
  view.quantized.scales += at;
  view.quantized.sums += 2 * at;
  view.quantized.weighted_sums += at;
  return view;
}

void multiply_panels(Compute& compute, const RowsView& x, const Product& product, size_t begin,
                     size_t end, int thread) {
  const Matrix& matrix = *product.matrix;
  CHECK(matrix.inputs == x.k);
  MatmulArgs args;
  args.panels = matrix.panels;
  args.panel_bytes = matrix.panel_bytes();
  args.panel_begin = begin;
  args.panel_end = end;
  args.k = matrix.inputs;
  args.rows = x.rows;
  args.quantized = x.quantized;
  args.x = x.x;
  args.x_stride = x.x_stride;
  args.y = product.y;
  args.y_stride = product.y_stride;
  args.scratch = compute.scratch(thread);
  compute.kernels().matmul[static_cast<size_t>(matrix.format)](args);
}

void count_product(Compute& compute, const Matrix& matrix, size_t rows, size_t panels) {
  Work& work = compute.work();
  const size_t outputs = std::min(panels * kPanelRows, matrix.outputs);
  const uint64_t operations = 2 * uint64_t{rows} * outputs * matrix.inputs;
  work.bytes += panels * matrix.panel_bytes();
  (matrix.quantized() ? work.int8_operations : work.float_operations) += operations;
}

void matmul(Compute& compute, const Activations& x, std::span<const Product> products) {
  constexpr size_t kProductsMax = 4;
  CHECK(products.size() <= kProductsMax);
  std::array<size_t, kProductsMax> chunk{};
  std::array<size_t, kProductsMax + 1> first_task{};
  for (size_t i = 0; i < products.size(); ++i) {
    const Matrix& matrix = *products[i].matrix;
    CHECK(matrix.inputs == x.k());
    CHECK(products[i].y_stride >= matrix.panel_count() * kPanelRows || x.rows() == 1);
    chunk[i] = task_panels(matrix, x.rows(), compute.pool().size());
    first_task[i + 1] = first_task[i] + (matrix.panel_count() + chunk[i] - 1) / chunk[i];
    count_product(compute, matrix, x.rows(), matrix.panel_count());
  }
  compute.pool().parallel_for(first_task[products.size()], [&](size_t task, int thread) {
    size_t i = 0;
    while (task >= first_task[i + 1]) ++i;
    const size_t begin = (task - first_task[i]) * chunk[i];
    const size_t end = std::min(begin + chunk[i], products[i].matrix->panel_count());
    multiply_panels(compute, x.view(), products[i], begin, end, thread);
  });
}

void matmul_panels(Compute& compute, const Activations& x, const Product& product,
                   std::span<const PanelTask> tasks, float other) {
  constexpr size_t kPanelsPerTask = 64;
  const Matrix& matrix = *product.matrix;
  CHECK(matrix.inputs == x.k());
  CHECK(tasks.size() == matrix.panel_count());
  CHECK(product.y_stride >= matrix.panel_count() * kPanelRows);
  const auto count = std::count(tasks.begin(), tasks.end(), PanelTask::kCompute);
  count_product(compute, matrix, x.rows(), static_cast<size_t>(count));
  const size_t pieces = (tasks.size() + kPanelsPerTask - 1) / kPanelsPerTask;
  compute.pool().parallel_for(pieces, [&](size_t piece, int thread) {
    const size_t end = std::min((piece + 1) * kPanelsPerTask, tasks.size());
    for (size_t panel = piece * kPanelsPerTask; panel < end;) {
      const PanelTask task = tasks[panel];
      size_t next = panel + 1;
      while (next < end && tasks[next] == task) ++next;
      if (task == PanelTask::kCompute) {
        multiply_panels(compute, x.view(), product, panel, next, thread);
      } else if (task == PanelTask::kFill) {
        for (size_t r = 0; r < x.rows(); ++r) {
          float* y = product.y + r * product.y_stride;
          std::fill(y + panel * kPanelRows, y + next * kPanelRows, other);
        }
      }
      panel = next;
    }
  });
}

}  // namespace kvikk
