#pragma once
// A weight matrix in panel layout, and the products with it: shapes are checked here, work is split
// over threads here, kernels do the rest.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace kvikk {

// A view; the bytes belong to the model's weight memory.
struct Matrix {
  PanelFormat format = PanelFormat::kF32;
  size_t outputs = 0;  // N
  size_t inputs = 0;   // K
  const uint8_t* panels = nullptr;

  size_t panel_count() const { return (outputs + kPanelRows - 1) / kPanelRows; }
  size_t panel_bytes() const;
  size_t bytes() const { return panel_count() * panel_bytes(); }
  bool quantized() const { return kPanelLayouts[static_cast<size_t>(format)].quantized; }
};

// What operations read and compute, to be held against the machine's limits. Every weight of a
// product and every page of the cache that a step needs counts once a step.
struct Work {
  uint64_t bytes = 0;             // of weights and cache
  uint64_t int8_operations = 0;   // two for a multiply-add
  uint64_t float_operations = 0;  // of float weights and of attention
};

// What every operation needs: the machine's kernels, its threads, and scratch for each of them.
class Compute {
 public:
  // `inputs_max` is the widest matrix input, `attend_rows_max` x `head_dim_max` the largest
  // attention tile.
  static Result<std::unique_ptr<Compute>> create(const Kernels& kernels, int threads,
                                                 size_t inputs_max, size_t attend_rows_max,
                                                 size_t head_dim_max);

  const Kernels& kernels() const { return kernels_; }
  ThreadPool& pool() { return pool_; }
  int threads() const { return pool_.size(); }
  // Of all operations so far; they count on the thread that asks for them.
  Work& work() { return work_; }
  // Calls f(row, thread) for every row. Neighbours go to one thread: quantized rows of a block, and
  // tokens of a page, share cache lines.
  template <class F>
  void for_rows(size_t rows, F&& f) {
    const size_t even =
        (rows + static_cast<size_t>(threads()) - 1) / static_cast<size_t>(threads());
    const size_t step = even < kRowBlock ? even : kRowBlock;
    if (rows == 0) return;
    pool_.parallel_for((rows + step - 1) / step, [&](size_t i, int thread) {
      const size_t end = rows - i * step < step ? rows : (i + 1) * step;
      for (size_t row = i * step; row < end; ++row) f(row, thread);
    });
  }
  uint8_t* scratch(int thread) {
    return scratch_.data() + static_cast<size_t>(thread) * scratch_bytes_;
  }

 private:
  Compute(const Kernels& kernels, int threads) : kernels_(kernels), pool_(threads) {}

  Kernels kernels_;
  ThreadPool pool_;
  Work work_;
  Buffer scratch_;  // [threads, scratch_bytes_]
  size_t scratch_bytes_ = 0;
};

// Rows that a product reads, in both forms; which one depends on the matrix.
struct RowsView {
  size_t rows = 0;
  size_t k = 0;
  QuantizedRows quantized;
  const float* x = nullptr;  // [rows, x_stride]
  size_t x_stride = 0;
};

// Rows of activations in both forms that matmul kernels read.
class Activations {
 public:
  static Result<Activations> allocate(size_t rows_max, size_t k_max);

  // Declares the shape for the coming rows.
  void shape(size_t rows, size_t k);
  size_t rows() const { return rows_; }
  size_t k() const { return k_; }
  float* row(size_t r) { return floats_.as<float>() + r * k_; }
  // Makes the int8 form of row r. k must be a multiple of 32.
  void quantize(const Kernels& kernels, size_t r) { kernels.quantize_row(row(r), r, quantized_); }
  const QuantizedRows& quantized() const { return quantized_; }
  const float* floats() const { return floats_.as<float>(); }
  RowsView view() const { return {rows_, k_, quantized_, floats(), k_}; }
  // Rows [first, first + rows) as rows by themselves; first is a multiple of 16. Their quantized
  // form must be made through this view: how rows interleave depends on how many there are.
  RowsView view(size_t first, size_t rows) const;

 private:
  size_t rows_ = 0;
  size_t k_ = 0;
  Buffer floats_;  // [rows, k]
  Buffer codes_, scales_, sums_, weighted_sums_;
  QuantizedRows quantized_;
};

struct Product {
  const Matrix* matrix;
  float* y;  // [rows, y_stride]; y_stride >= outputs rounded up to 16
  size_t y_stride;
};

// The piece of a product that a task does: panels [begin, end), on this thread.
void multiply_panels(Compute& compute, const RowsView& x, const Product& product, size_t begin,
                     size_t end, int thread);
// Adds a product over `panels` of the matrix to compute.work().
void count_product(Compute& compute, const Matrix& matrix, size_t rows, size_t panels);

// y = x W^T for several matrices over the same activations, in one parallel phase.
void matmul(Compute& compute, const Activations& x, std::span<const Product> products);

// What becomes of the 16 outputs of a panel.
enum class PanelTask : uint8_t { kKeep, kCompute, kFill };

// The same for some panels of one matrix, bit for bit as above. `tasks`: [panel_count]; y is kept
// as it is, computed, or filled with `other`.
void matmul_panels(Compute& compute, const Activations& x, const Product& product,
                   std::span<const PanelTask> tasks, float other = 0.0f);

}  // namespace kvikk
