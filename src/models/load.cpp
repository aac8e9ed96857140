// Which tensors a model has: asks the loader for each role that the configuration names.

#include "models/model.h"
#include "models/tensor_loader.h"
#include "weights/tensor_rows.h"

namespace kvikk {

namespace {

Status load_norm(TensorLoader& loader, const ModelConfig& c, const std::string& name, size_t n,
                 NormWeights& norm) {
  TRY(loader.vector(name + ".weight", RowChoice::all(n), n, norm.weight));
  for (float& weight : norm.weight) weight += c.norm_weight_offset;
  if (!c.norm_bias) return ok_status();
  return loader.vector(name + ".bias", RowChoice::all(n), n, norm.bias);
}

Status load_bias(TensorLoader& loader, const std::string& name, const RowChoice& rows, size_t n,
                 Presence presence, std::vector<float>& bias) {
  if (presence == Presence::kNo) return ok_status();
  if (presence == Presence::kIfThere && loader.lookup(name + ".bias") == nullptr) {
    return ok_status();
  }
  return loader.vector(name + ".bias", rows, n, bias);
}

Status load_linear(TensorLoader& loader, const std::string& name, const RowChoice& rows,
                   size_t outputs, size_t inputs, Presence bias, Linear& linear) {
  TRY(loader.matrix(name + ".weight", rows, outputs, inputs, linear.matrix));
  return load_bias(loader, name, rows, outputs, bias, linear.bias);
}

// Roles of one layer.
class LayerLoader {
 public:
  LayerLoader(TensorLoader& loader, const ModelConfig& config, size_t layer)
      : loader_(loader), c_(config), layer_(layer) {}

  Status norm(const char* name, size_t n, NormWeights& weights) {
    return name == nullptr ? ok_status()
                           : load_norm(loader_, c_, at_layer(name, layer_), n, weights);
  }

  // Of q or k.
  Status heads_norm(const char* name, size_t heads, NormWeights& weights) {
    if (name == nullptr || (c_.qk_norm_optional && !has(name))) return ok_status();
    if (c_.qk_norm == QkNorm::kEachHead) return each_heads_norm(name, heads, weights);
    const size_t n = c_.qk_norm == QkNorm::kHead ? c_.head_dim : heads * c_.head_dim;
    return load_norm(loader_, c_, at_layer(name, layer_), n, weights);
  }

  // One tensor, or one for each head. They have no biases.
  Status each_heads_norm(const char* name, size_t heads, NormWeights& weights) {
    const RowChoice all = RowChoice::all(heads * c_.head_dim);
    if (!is_one_by_one(name)) {
      return loader_.vector(at_layer(name, layer_) + ".weight", all, all.tensor_rows,
                            weights.weight, {c_.head_dim, heads});
    }
    for (size_t h = 0; h < heads; ++h) {
      std::vector<float> head;
      TRY(loader_.vector(at_layer(name, layer_, h) + ".weight", RowChoice::all(c_.head_dim),
                         c_.head_dim, head));
      weights.weight.insert(weights.weight.end(), head.begin(), head.end());
    }
    return ok_status();
  }

  Status linear(const char* name, size_t outputs, size_t inputs, Presence bias, Linear& out) {
    return load_linear(loader_, at_layer(name, layer_), RowChoice::all(outputs), outputs, inputs,
                       bias, out);
  }

  Status linear_part(const char* name, const RowChoice& rows, size_t outputs, size_t inputs,
                     Presence bias, Linear& out) {
    return load_linear(loader_, at_layer(name, layer_), rows, outputs, inputs, bias, out);
  }

  Status experts(MoeWeights& weights) { return load_moe(loader_, c_, layer_, weights); }
  Status latent(MlaWeights& weights) { return load_mla(loader_, c_, layer_, weights); }
  // A vector under its whole name, if the family has it.
  Status whole_vector(const char* name, size_t n, std::vector<float>& out) {
    return name == nullptr ? ok_status()
                           : loader_.vector(at_layer(name, layer_), RowChoice::all(n), n, out);
  }

  // Whether the file has this (fused) tensor.
  bool has(const char* name) const {
    return name != nullptr && loader_.lookup(at_layer(name, layer_) + ".weight") != nullptr;
  }

 private:
  TensorLoader& loader_;
  const ModelConfig& c_;
  size_t layer_;
};

Status load_qkv(LayerLoader& loader, const ModelConfig& c, LayerWeights& w) {
  const TensorNames& names = c.names;
  const size_t q = c.heads * c.head_dim;
  const size_t k = c.kv_heads * c.head_dim;
  const size_t v = c.kv_heads * c.value_dim;
  if (names.q != nullptr && !loader.has(names.qkv)) {
    TRY(loader.linear(names.q, q, c.hidden, c.qkv_bias, w.q));
    TRY(loader.linear(names.k, k, c.hidden, c.qkv_bias, w.k));
    return loader.linear(names.v, v, c.hidden, c.qkv_bias, w.v);
  }
  const size_t all = q + k + v;
  const size_t group = c.heads / c.kv_heads * c.head_dim;  // rows of q that share a KV head
  const size_t stride = group + c.head_dim + c.value_dim;
  const bool by_group = names.qkv_rows == QkvRows::kByGroup;
  const RowChoice q_rows =
      by_group ? RowChoice{all, 0, group, stride} : RowChoice::range(all, 0, q);
  const RowChoice k_rows =
      by_group ? RowChoice{all, group, c.head_dim, stride} : RowChoice::range(all, q, k);
  const RowChoice v_rows = by_group ? RowChoice{all, group + c.head_dim, c.value_dim, stride}
                                    : RowChoice::range(all, q + k, v);
  TRY(loader.linear_part(names.qkv, q_rows, q, c.hidden, c.qkv_bias, w.q));
  TRY(loader.linear_part(names.qkv, k_rows, k, c.hidden, c.qkv_bias, w.k));
  return loader.linear_part(names.qkv, v_rows, v, c.hidden, c.qkv_bias, w.v);
}

Status load_attention(LayerLoader& loader, const ModelConfig& c, LayerWeights& w) {
  const char* own = c.names.own_attention_norm;
  TRY(loader.norm(loader.has(own) ? own : c.names.attention_norm, c.hidden, w.attention_norm));
  if (c.mla.rank > 0) {
    w.mla = std::make_unique<MlaWeights>();
    TRY(loader.latent(*w.mla));
    TRY(loader.linear(c.names.o, c.hidden, c.heads * c.mla.value, c.output_bias, w.o));
    return loader.norm(c.names.post_attention_norm, c.hidden, w.post_attention_norm);
  }
  TRY(load_qkv(loader, c, w));
  TRY(loader.whole_vector(c.names.sinks, c.heads, w.sinks));
  TRY(loader.heads_norm(c.names.q_norm, c.heads, w.q_norm));
  TRY(loader.heads_norm(c.names.k_norm, c.kv_heads, w.k_norm));
  TRY(loader.linear(c.names.o, c.hidden, c.heads * c.value_dim, c.output_bias, w.o));
  return loader.norm(c.names.post_attention_norm, c.hidden, w.post_attention_norm);
}

Status load_mlp(LayerLoader& loader, const ModelConfig& c, size_t layer, LayerWeights& w) {
  const size_t width = c.feed_forward;
  TRY(loader.norm(c.names.mlp_norm, c.hidden, w.mlp_norm));
  if (c.layer[layer].experts) {
    w.moe = std::make_unique<MoeWeights>();
    TRY(loader.experts(*w.moe));
    return loader.norm(c.names.post_mlp_norm, c.hidden, w.post_mlp_norm);
  }
  if (c.gated_mlp && (c.names.gate == nullptr || loader.has(c.names.gate_up))) {
    const char* name = c.names.gate_up;
    TRY(loader.linear_part(name, RowChoice::range(2 * width, 0, width), width, c.hidden, c.mlp_bias,
                           w.gate));
    TRY(loader.linear_part(name, RowChoice::range(2 * width, width, width), width, c.hidden,
                           c.mlp_bias, w.up));
  } else {
    if (c.gated_mlp) TRY(loader.linear(c.names.gate, width, c.hidden, c.mlp_bias, w.gate));
    TRY(loader.linear(c.names.up, width, c.hidden, c.mlp_bias, w.up));
  }
  TRY(loader.linear(c.names.down, c.hidden, width, c.mlp_bias, w.down));
  return loader.norm(c.names.post_mlp_norm, c.hidden, w.post_mlp_norm);
}

// The number of layers is the file's claim until their tensors are seen: grow only after that.
Status check_layers(const TensorSource& source, const TensorLoader& loader, const ModelConfig& c) {
  for (size_t i = 0; i < c.layers; ++i) {
    const std::string name = at_layer(c.names.o, i) + ".weight";
    if (loader.lookup(name) != nullptr) continue;
    return damaged(source.path() + ": tensor '" + name + "' is missing; the configuration has " +
                   std::to_string(c.layers) + " layers");
  }
  return ok_status();
}

// The table's rows, [hidden x rows]. A GGUF file does not say how many: rows = 0 takes any number.
Result<const StoredTensor*> find_table(const TensorSource& source, TensorLoader& loader,
                                       const char* role, size_t hidden, size_t rows) {
  constexpr uint64_t kRowsMax = 1 << 24;
  const std::string name = std::string(role) + ".weight";
  const StoredTensor* tensor = loader.lookup(name);
  if (tensor == nullptr) return damaged(source.path() + ": tensor '" + name + "' is missing");
  if (rows == 0 &&
      (tensor->shape.size() != 2 || tensor->shape[1] == 0 || tensor->shape[1] > kRowsMax)) {
    return damaged(source.path() + ": tensor '" + name + "' is not a table of [" +
                   std::to_string(hidden) + " x 1 to " + std::to_string(kRowsMax) + "]");
  }
  return loader.find(name, {hidden, rows > 0 ? rows : tensor->shape[1]});
}

// What is added to each embedding, and its norm.
Status load_embedding_parts(const TensorSource& source, TensorLoader& loader, const ModelConfig& c,
                            ModelWeights& weights) {
  if (c.names.token_types != nullptr) {
    TRY_ASSIGN(const StoredTensor* table,
               find_table(source, loader, c.names.token_types, c.hidden, c.token_types));
    const size_t all = static_cast<size_t>(table->elements());
    TRY(loader.vector(table->name, RowChoice::range(all, 0, c.hidden), c.hidden, weights.token_type,
                      table->shape));
  }
  if (c.names.embedding_norm == nullptr) return ok_status();
  return load_norm(loader, c, c.names.embedding_norm, c.hidden, weights.embedding_norm);
}

Status load_head(const TensorSource& source, TensorLoader& loader, const ModelConfig& c,
                 ModelWeights& weights) {
  if (c.names.head == nullptr) {
    if (is_readable(*weights.embedding)) return ok_status();
    return unsupported(source.path() + ": tensor '" + weights.embedding->name +
                       "' has elements of type " + dtype_info(weights.embedding->type).name +
                       "; weights cannot be read from that");
  }
  const std::string head = std::string(c.names.head) + ".weight";
  const bool there = loader.lookup(head) != nullptr;
  weights.tied = c.tied == Presence::kYes || (c.tied == Presence::kIfThere && !there);
  if (weights.tied) loader.ignore(head);  // some files repeat the embedding there
  const std::string name =
      weights.tied ? std::string(c.names.embedding) + ".weight" : std::string(head);
  TRY(loader.table_matrix(name, c.vocabulary, c.hidden, weights.head.matrix));
  weights.head_tensor = loader.lookup(name);
  return load_bias(loader, c.names.head, RowChoice::all(c.vocabulary), c.vocabulary, c.head_bias,
                   weights.head.bias);
}

// Divisors of rotary frequencies that GGUF files keep as tensors: Llama 3's, longrope's.
Status load_rope(const TensorSource& source, TensorLoader& loader, ModelConfig& c) {
  const size_t pairs = c.rotary / 2;
  const auto load = [&](const char* name, std::vector<float>& out) -> Status {
    if (loader.lookup(name) == nullptr) return ok_status();
    TRY(loader.vector(name, RowChoice::all(pairs), pairs, out));
    for (const float divisor : out) {
      if (divisor > 0.0f) continue;
      return damaged(source.path() + ": tensor '" + name +
                     "' holds a divisor that is not positive");
    }
    return ok_status();
  };
  TRY(load("rope_freqs.weight", c.rope.divisors));
  if (loader.lookup("rope_factors_long.weight") == nullptr) {
    if (c.rope.scaling != RopeConfig::Scaling::kLongRope || !c.rope.long_factors.empty()) {
      return ok_status();
    }
    return damaged(source.path() + ": tensor 'rope_factors_long.weight' is missing");
  }
  TRY(load("rope_factors_long.weight", c.rope.long_factors));
  TRY_ASSIGN(const StoredTensor* unused, loader.find("rope_factors_short.weight", {pairs}));
  (void)unused;
  TRY(load("rope_factors_short.weight", c.rope.short_factors));
  c.rope.scaling = RopeConfig::Scaling::kLongRope;
  return ok_status();
}

// Everything but the bytes of the matrices.
Status find_weights(const TensorSource& source, TensorLoader& loader, ModelConfig& c,
                    ModelWeights& weights) {
  weights.source = &source;
  TRY_ASSIGN(weights.embedding,
             find_table(source, loader, c.names.embedding, c.hidden, c.vocabulary));
  c.vocabulary = static_cast<size_t>(weights.embedding->shape[1]);
  if (c.names.positions != nullptr) {
    TRY_ASSIGN(weights.positions,
               find_table(source, loader, c.names.positions, c.hidden, c.learned_positions));
  }
  TRY(check_layers(source, loader, c));
  weights.layers.resize(c.layers);
  for (size_t i = 0; i < c.layers; ++i) {
    LayerLoader layer(loader, c, i);
    TRY(load_attention(layer, c, weights.layers[i]));
    TRY(load_mlp(layer, c, i, weights.layers[i]));
  }
  loader.ignore_layers(c.names.o, c.layers, c.layers_unused);
  TRY(load_embedding_parts(source, loader, c, weights));
  if (c.names.output_norm != nullptr) {
    TRY(load_norm(loader, c, c.names.output_norm, c.hidden, weights.output_norm));
  }
  TRY(load_head(source, loader, c, weights));
  TRY(load_rope(source, loader, c));
  return loader.refuse_unknown();
}

}  // namespace

Status check_weights(const TensorSource& source, ModelConfig& config) {
  TensorLoader loader(source, {}, config.names);
  ModelWeights weights;
  return find_weights(source, loader, config, weights);
}

Result<ModelWeights> load_weights(const TensorSource& source, ModelConfig& config, ThreadPool& pool,
                                  const LoadOptions& options) {
  TensorLoader loader(source, options, config.names);
  ModelWeights weights;
  TRY(find_weights(source, loader, config, weights));
  if (weights.positions != nullptr) TRY(loader.validate(pool, *weights.positions));
  if (!weights.tied) TRY(loader.validate(pool, *weights.embedding));
  TRY(loader.pack(pool, weights.memory));
  if (weights.head_tensor == nullptr) return weights;
  // The top of the product alone is not the top once biases are added.
  const bool two_stages = weights.head.bias.empty() && config.logit_scale > 0.0f;
  const StoredTensor* rows = two_stages ? weights.head_tensor : nullptr;
  TRY_ASSIGN(weights.output, OutputHead::create(weights.head.matrix, rows, pool, kLogitsRowsMax,
                                                [&] { source.drop(*weights.head_tensor); }));
  return weights;
}

}  // namespace kvikk
