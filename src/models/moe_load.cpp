// Which tensors a mixture-of-experts layer has.

#include "models/moe.h"

namespace kvikk {

namespace {

class ExpertLoader {
 public:
  ExpertLoader(TensorLoader& loader, const ModelConfig& config, size_t layer)
      : loader_(loader), c_(config), m_(config.moe), layer_(layer) {}

  Status load(size_t index, Expert& expert) {
    if (m_.names.gate_up != nullptr) {
      TRY(fused(index, 0, expert.gate, expert.gate_bias));
      TRY(fused(index, 1, expert.up, expert.up_bias));
    } else {
      TRY(plain(m_.names.gate, index, m_.width, c_.hidden, expert.gate, expert.gate_bias));
      TRY(plain(m_.names.up, index, m_.width, c_.hidden, expert.up, expert.up_bias));
    }
    return plain(m_.names.down, index, c_.hidden, m_.width, expert.down, expert.down_bias);
  }

 private:
  bool by_columns() const { return m_.fused == MoeConfig::Fused::kInterleavedColumns; }

  Status plain(const char* name, size_t index, size_t outputs, size_t inputs, Matrix& matrix,
               std::vector<float>& bias) {
    const RowChoice rows = RowChoice::all(outputs);
    if (is_one_by_one(name)) {
      return loader_.matrix(at_layer(name, layer_, index) + ".weight", rows, outputs, inputs,
                            matrix);
    }
    const bool columns = m_.names.gate_up != nullptr && by_columns();
    const Stack stack = {m_.experts, index, columns};
    TRY(loader_.stacked_matrix(at_layer(name, layer_), stack, rows, outputs, inputs, matrix));
    if (!m_.expert_bias) return ok_status();
    return loader_.stacked_vector(at_layer(name, layer_), stack, rows, outputs, bias);
  }

  // part 0: the gate, 1: up.
  Status fused(size_t index, size_t part, Matrix& matrix, std::vector<float>& bias) {
    const size_t width = m_.width;
    const RowChoice rows = by_columns() ? RowChoice{2 * width, part, 1, 2}
                                        : RowChoice::range(2 * width, part * width, width);
    const std::string name = at_layer(m_.names.gate_up, layer_);
    const Stack stack = {m_.experts, index, by_columns()};
    TRY(loader_.stacked_matrix(name, stack, rows, width, c_.hidden, matrix));
    if (!m_.expert_bias) return ok_status();
    return loader_.stacked_vector(name, stack, rows, width, bias);
  }

  TensorLoader& loader_;
  const ModelConfig& c_;
  const MoeConfig& m_;
  size_t layer_;
};

}  // namespace

Status load_moe(TensorLoader& loader, const ModelConfig& config, size_t layer, MoeWeights& w) {
  const MoeConfig& m = config.moe;
  const size_t hidden = config.hidden;
  const RowChoice all = RowChoice::all(m.experts);
  TRY(loader.float_matrix(at_layer(m.names.router, layer) + ".weight", all, m.experts, hidden,
                          w.router));
  if (m.router_bias) {
    TRY(loader.vector(at_layer(m.names.router, layer) + ".bias", all, m.experts, w.router_bias));
  }
  if (m.names.correction != nullptr) {
    TRY(loader.vector(at_layer(m.names.correction, layer), all, m.experts, w.correction));
  }
  w.experts.resize(m.experts);
  ExpertLoader experts(loader, config, layer);
  for (size_t e = 0; e < m.experts; ++e) TRY(experts.load(e, w.experts[e]));
  if (m.shared_width == 0) return ok_status();
  const auto shared = [&](const char* name, size_t outputs, size_t inputs, Matrix& matrix) {
    return loader.matrix(at_layer(name, layer) + ".weight", RowChoice::all(outputs), outputs,
                         inputs, matrix);
  };
  TRY(shared(m.names.shared_gate, m.shared_width, hidden, w.shared_gate));
  TRY(shared(m.names.shared_up, m.shared_width, hidden, w.shared_up));
  TRY(shared(m.names.shared_down, hidden, m.shared_width, w.shared_down));
  if (m.names.shared_mix == nullptr) return ok_status();
  return loader.row(at_layer(m.names.shared_mix, layer) + ".weight", hidden, w.shared_mix);
}

}  // namespace kvikk
