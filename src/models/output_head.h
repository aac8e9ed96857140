#pragma once
// The product that turns hidden states into logits. It is up to 70% of the bytes of a decode step,
// and most draws look at the most likely tokens only. So a head of 8 bits a weight keeps
// a 4-bit copy of itself, which gives every logit with an error whose spread is known:
//
//   1  the copy: all logits, roughly
//   2  the full weights, for the panels that hold the top of those; their true top is a threshold
//   3  the full weights, for the other panels whose upper bound reaches the threshold
//
// What the full weights computed has the same bits as ever; the rest is left out as -infinity.
//
// The error of row r for activations x is sum (w - w') x, where w - w' is rounding noise of known
// norm: a standard deviation of s_r = |w_r - w'_r| sqrt(sum over groups of 32 of share_g |x_g|^2 /
// 32), share_g being the groups' shares of that norm, averaged over rows.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/matrix.h"
#include "weights/tensor_source.h"

namespace kvikk {

class OutputHead {
 public:
  // Standard deviations to the upper bound. One error in 10^12 is larger; only one of a logit that
  // belongs to the top would matter.
  inline static constexpr double kMargin = 7.0;
  inline static constexpr size_t kTopMax = 256;  // more top tokens than that take the full head

  OutputHead() = default;

  // `full`: [vocabulary, hidden], packed from the rows of `tensor`; null: one stage. Rows of a
  // call: up to rows_max. One stage also where two do not pay: heads of float weights, or of fewer
  // than 8 bits. Errors: kExhausted.
  // `release` is called whenever the pages of the tensor that were read may be given back.
  static Result<OutputHead> create(const Matrix& full, const StoredTensor* tensor, ThreadPool& pool,
                                   size_t rows_max, const std::function<void()>& release = {});

  bool staged() const { return copy_.panels != nullptr; }

  // y [x.rows(), y_stride] = logits; y_stride >= vocabulary rounded up to 16. top: how many of the
  // largest logits of each row are needed, ties included; 0 means all of them. Otherwise those are
  // there, others may be -infinity. A NaN in x reaches all logits of its row.
  void run(Compute& compute, const Activations& x, size_t top, float* y, size_t y_stride);

 private:
  void copy_panel(const StoredTensor& tensor, size_t panel, float* shares);
  float spread(const float* x) const;
  void bound(Compute& compute, size_t rows);
  void choose_first(size_t rows, size_t top);
  float threshold(const float* y, size_t top);
  size_t choose_rest(size_t row, float threshold);

  size_t steps_in_full_ = 0;  // to come: two stages did not pay lately
  Matrix full_;
  Matrix copy_;
  Buffer copy_memory_;
  std::vector<float> rest_;       // [vocabulary padded]: |w - w'|
  std::vector<float> shares_;     // [groups], sum 1
  std::vector<float> spreads_;    // [rows_max]: what rest_ is multiplied with
  Buffer approximate_;            // [rows_max, vocabulary padded]
  std::vector<float> largest_;    // [rows_max, panels]: of a panel's approximate logits
  std::vector<float> upper_;      // [rows_max, panels]: the largest upper bound of a panel
  std::vector<PanelTask> tasks_;  // [panels]
  std::vector<float> sorted_;     // of panels, or of logits
  std::vector<uint32_t> first_;   // panels of step 2, of all rows
  std::vector<std::pair<float, uint32_t>> order_;  // [panels]
};

}  // namespace kvikk
