// BERT (Devlin et al. 2018) and RoBERTa (Liu et al. 2019), encoders: each token sees its whole
// text.
//
//   x = layer_norm(embedding[token] + types[0] + positions[position])
//   x = layer_norm(x + Wo attention(Wqkv x));  x = layer_norm(x + Wdown gelu(Wup x))
//
// Biases everywhere, no head: the result is the last x, of which embed makes one vector a text.
// RoBERTa's positions begin behind the row of its padding token; GGUF files have cut those off.

#include "models/family.h"

namespace kvikk {

namespace {

constexpr TensorNames kHfNames = {
    .embedding = "bert.embeddings.word_embeddings",
    .positions = "bert.embeddings.position_embeddings",
    .token_types = "bert.embeddings.token_type_embeddings",
    .embedding_norm = "bert.embeddings.LayerNorm",
    .post_attention_norm = "bert.encoder.layer.#.attention.output.LayerNorm",
    .post_mlp_norm = "bert.encoder.layer.#.output.LayerNorm",
    .q = "bert.encoder.layer.#.attention.self.query",
    .k = "bert.encoder.layer.#.attention.self.key",
    .v = "bert.encoder.layer.#.attention.self.value",
    .o = "bert.encoder.layer.#.attention.output.dense",
    .up = "bert.encoder.layer.#.intermediate.dense",
    .down = "bert.encoder.layer.#.output.dense",
    .ignored = {".position_ids", "pooler.", "bert.pooler.", "cls.", "roberta.pooler.", "lm_head."},
};

constexpr TensorNames kGguf = {
    .embedding = "token_embd",
    .positions = "position_embd",
    .token_types = "token_types",
    .embedding_norm = "token_embd_norm",
    .post_attention_norm = "blk.#.attn_output_norm",
    .post_mlp_norm = "blk.#.layer_output_norm",
    .q = "blk.#.attn_q",
    .k = "blk.#.attn_k",
    .v = "blk.#.attn_v",
    .o = "blk.#.attn_output",
    .up = "blk.#.ffn_up",
    .down = "blk.#.ffn_down",
    .ignored = {"cls."},
};

// What would be another model.
Status refuse_others(const ConfigKeys& keys) {
  TRY_ASSIGN(const bool causal, keys.flag({"attention.causal", "is_decoder"}, false));
  if (causal) {
    return unsupported(keys.path() + ": " + keys.name({"attention.causal", "is_decoder"}) +
                       " is true; only encoders of this family are supported");
  }
  constexpr Key kPositions = {"", "position_embedding_type"};
  TRY_ASSIGN(const std::string positions, keys.text(kPositions, "absolute"));
  if (positions == "absolute") return ok_status();
  return unsupported(keys.path() + ": " + keys.name(kPositions) + " is '" + positions +
                     "'. Supported: absolute.");
}

Result<ModelConfig> read_config(const ConfigKeys& keys) {
  TRY(refuse_others(keys));
  ModelConfig defaults;
  defaults.encoder = true;
  defaults.norm = NormKind::kLayer;
  defaults.norm_bias = true;
  defaults.norm_epsilon = 1e-12f;
  defaults.norm_of_sum = true;
  defaults.gated_mlp = false;
  defaults.activation = Activation::kGelu;
  TRY_ASSIGN(ModelConfig c, read_common_config(keys, defaults));
  for (LayerConfig& layer : c.layer) layer.rotates = false;
  c.learned_positions = c.context;
  if (keys.is_gguf()) {
    c.names = kGguf;
    return c;
  }
  c.names = kHfNames;
  c.qkv_bias = c.output_bias = c.mlp_bias = Presence::kYes;
  TRY_ASSIGN(c.token_types, keys.size({"", "type_vocab_size"}, 1024, 2));
  if (keys.architecture() == "bert") return c;
  TRY_ASSIGN(const size_t padding, keys.count({"", "pad_token_id"}, c.context));
  c.first_position = padding + 1;
  if (c.first_position >= c.context) {
    return keys.wrong(
        {"", "pad_token_id"}, std::to_string(padding),
        "less than max_position_embeddings - 1, which is " + std::to_string(c.context - 1));
  }
  c.context -= c.first_position;
  return c;
}

}  // namespace

extern const ModelDef kBert;
const ModelDef kBert = {"BERT",
                        "bert",
                        {"bert", "roberta", "xlm-roberta"},
                        "encoders for `kvikk embed`: MiniLM, BGE, E5, GTE and their kin",
                        "bert, roberta",
                        read_config};

}  // namespace kvikk
