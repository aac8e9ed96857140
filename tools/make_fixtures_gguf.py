"""The GGUF twin of a tiny model, as llama.cpp's converter writes its family. Used by
make_fixtures.py; F32 throughout, so that the twin expects the same logits."""

import gguf
import numpy as np
import torch

ARCHITECTURES = {
    "cohere": "command-r", "cohere2": "cohere2", "starcoder2": "starcoder2",
    "stablelm": "stablelm", "gpt2": "gpt2", "gpt_neox": "gptneox", "phi": "phi2",
    "falcon": "falcon", "exaone4": "exaone4", "ernie4_5": "ernie4_5",
    "hunyuan_v1_dense": "hunyuan-dense", "seed_oss": "seed_oss", "nemotron": "nemotron",
    "gemma": "gemma", "gemma2": "gemma2", "olmo2": "olmo2", "olmo3": "olmo2", "granite": "granite",
    "smollm3": "smollm3", "glm4": "glm4", "bert": "bert",
}
LAYER_NORM = {"cohere", "cohere2", "starcoder2", "stablelm", "gpt2", "gpt_neox", "phi", "falcon",
              "nemotron", "bert"}
PERMUTED = {"granite", "smollm3"}  # the rows of q and k, as for llama
ONE_ADDED = {"gemma", "gemma2", "nemotron"}  # to norms
DROPPED = ("inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias")


def first(config, *names, default=None):
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    return default


def rotary_of(config, head_dim):
    rope = getattr(config, "rope_parameters", None) or {}
    part = rope.get("partial_rotary_factor") or first(config, "partial_rotary_factor",
                                                       "rotary_pct", default=1.0)
    return int(head_dim * part)


def rope_base(config, head_dim):
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    base = rope.get("rope_theta") or first(config, "rope_theta", default=10000.0)
    if rope.get("alpha"):
        base *= rope["alpha"] ** (head_dim / (head_dim - 2))
    return base


def permute(rows, heads):
    """Hugging Face's order of a head (i with i + d / 2) to neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]) \
               .swapaxes(1, 2).reshape(rows.shape)


def in_order(rows, heads, kv_heads, head_dim):
    """Fused q, k, v from groups (query heads, key, value) to all q, all k, all v."""
    group = heads // kv_heads
    parts = rows.reshape(kv_heads, group + 2, head_dim, *rows.shape[1:])
    tail = rows.shape[1:]
    return np.concatenate([parts[:, :group].reshape(-1, *tail), parts[:, group].reshape(-1, *tail),
                           parts[:, group + 1].reshape(-1, *tail)])


def write_keys(writer, kind, config, heads, kv_heads, head_dim, hidden):
    writer.add_context_length(first(config, "max_position_embeddings", "n_positions",
                                    default=2048))
    writer.add_embedding_length(hidden)
    writer.add_block_count(config.num_hidden_layers)
    feed_forward = first(config, "intermediate_size", "n_inner", "ffn_hidden_size",
                         default=4 * hidden)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    epsilon = first(config, "rms_norm_eps", "layer_norm_eps", "norm_eps", "norm_epsilon",
                    "layer_norm_epsilon")
    if kind in LAYER_NORM:
        writer.add_layer_norm_eps(epsilon)
    else:
        writer.add_layer_norm_rms_eps(epsilon)
    if kind not in ("gpt2", "bert"):
        writer.add_rope_dimension_count(rotary_of(config, head_dim))
        writer.add_rope_freq_base(rope_base(config, head_dim))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if kind in ("exaone4", "olmo3") and config.sliding_window:
        writer.add_sliding_window_pattern([t == "sliding_attention" for t in config.layer_types])
    rope = (getattr(config, "rope_parameters", None) or {}).get("full_attention", {})
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind in ("cohere", "cohere2"):
        writer.add_logit_scale(config.logit_scale)
    if kind == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if kind in ("stablelm", "gpt_neox"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)


def with_stacked_norms(state):
    """StableLM's norms of the heads of q and k, one tensor a layer: [heads, head_dim]."""
    stacks = {}
    for key, tensor in state.items():
        part, mark, _ = key.partition("_layernorm.norms.")
        stacks.setdefault(part + "_layernorm.weight" if mark else key, []).append(tensor)
    return {key: torch.stack(parts) if key.endswith(("q_layernorm.weight", "k_layernorm.weight"))
            and len(parts) > 1 else parts[0] for key, parts in stacks.items()}


def write(path, model, config):
    kind = config.model_type
    name = ARCHITECTURES[kind]
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == name)
    heads = config.num_attention_heads
    hidden = config.hidden_size
    kv_heads = first(config, "num_key_value_heads", "num_kv_heads", default=heads)
    if kind == "falcon" and not config.new_decoder_architecture and config.multi_query:
        kv_heads = 1
    head_dim = first(config, "head_dim", default=hidden // heads)
    writer = gguf.GGUFWriter(path, name)
    write_keys(writer, kind, config, heads, kv_heads, head_dim, hidden)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    state = with_stacked_norms(model.state_dict())
    for key, tensor in state.items():
        if key.endswith(DROPPED) or (tied and key.startswith(("lm_head", "embed_out"))):
            continue
        rows = tensor.float().numpy()
        target = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert target is not None, key
        stem = target.rsplit(".", 1)[0]
        if kind == "gpt2" and rows.ndim == 2 and stem.startswith("blk."):
            rows = rows.T
        if stem.endswith("attn_qkv") and kind in ("gpt_neox", "falcon"):
            rows = in_order(rows, heads, kv_heads, head_dim)
        if kind in PERMUTED and stem.endswith(("attn_q", "attn_k")):
            rows = permute(rows, heads if stem.endswith("q") else kv_heads)
        if kind in ONE_ADDED and stem.endswith("norm") and target.endswith(".weight"):
            rows = rows + 1.0
        writer.add_tensor(target, np.ascontiguousarray(rows, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_encoder(path, model, config, tokens):
    """Also its WordPiece vocabulary, in which words begin with a mark, not go on with one."""
    heads, hidden = config.num_attention_heads, config.hidden_size
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config.model_type])
    write_keys(writer, config.model_type, config, heads, heads, hidden // heads, hidden)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    special = [t.startswith("[") for t in tokens]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([t if s else t[2:] if t.startswith("##") else "\u2581" + t
                           for t, s in zip(tokens, special)])
    writer.add_token_types([gguf.TokenType.CONTROL if s else gguf.TokenType.NORMAL
                            for s in special])
    writer.add_token_type_count(config.type_vocab_size)
    for add, name in ((writer.add_pad_token_id, "[PAD]"), (writer.add_unk_token_id, "[UNK]"),
                      (writer.add_bos_token_id, "[CLS]"), (writer.add_eos_token_id, "[SEP]"),
                      (writer.add_sep_token_id, "[SEP]"), (writer.add_mask_token_id, "[MASK]")):
        add(tokens.index(name))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for key, tensor in model.state_dict().items():
        if key.startswith("pooler.") or key.endswith("position_ids"):
            continue
        target = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert target is not None, key
        writer.add_tensor(target, tensor.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
