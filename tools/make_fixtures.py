#!/usr/bin/env python3
r"""Writes tiny random models of every family, with the logits that transformers computes for them.

    python3 -m venv venv && venv/bin/pip install torch transformers safetensors gguf numpy
    venv/bin/python tools/make_fixtures.py --out FOLDER [--only NAME,...] [--gguf]

A case of a decoder is a folder in the Hugging Face layout: config.json, model.safetensors (BF16),
expected.json (prompts, positions, greedy tokens) and expected.f32 (logits of all positions of the
short prompt, then of some of the long one). Weights are random, but so that a fault shows:
attention is neither uniform nor one-hot, norms and biases are away from their neutral values. The
long prompt exceeds every window. With --gguf a twin in GGUF (F32) stands beside it, written as
llama.cpp's converter writes that family: rows of q and k permuted, fused matrices put in order,
norms with their 1 added.

A case of an encoder has encoder.json in place of expected.json: tokens whose final states are the
first part of expected.f32, and where it has a tokenizer texts, their ids, and their vectors of
length 1 by mean, cls and last token.

tests/data/models holds the output for every case, with twins in GGUF of some:
    venv/bin/python tools/make_fixtures.py --out tests/data/models
    venv/bin/python tools/make_fixtures.py --out tests/data/models --gguf \
        --only bert,exaone4,falcon-new,gpt_neox,hunyuan_v1_dense,nemotron,olmo3,phi,seed_oss
    venv/bin/python tools/make_fixtures.py --out tests/data/models --gguf \
        --only stablelm-qk,starcoder2
"""

import argparse
import hashlib
import json
import os

import numpy as np
import torch
import transformers

SHORT, LONG, GREEDY, POSITIONS = 24, 300, 24, 20
GAP_MIN = 0.03  # between the best two logits of a greedy step: rounding must not choose

BASE = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)
WIDE = dict(hidden_size=64, num_attention_heads=4)
LATENT = dict(num_hidden_layers=3, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16,
              v_head_dim=24, num_key_value_heads=2, n_routed_experts=8, n_shared_experts=2,
              num_experts_per_tok=2, moe_intermediate_size=24, first_k_dense_replace=1,
              routed_scaling_factor=1.5)
MHA = dict(num_key_value_heads="absent")  # the family has no such key


def case(model_type, **changes):
    return model_type, {k: v for k, v in {**BASE, **changes}.items() if v != "absent"}


CASES = {
    "cohere": case("cohere", logit_scale=0.4),
    "cohere-qk": case("cohere", logit_scale=0.4, use_qk_norm=True),
    "cohere2": case("cohere2", logit_scale=0.4, num_hidden_layers=4, sliding_window=48),
    "starcoder2": case("starcoder2", sliding_window=48, use_bias=True),
    "stablelm": case("stablelm", use_qkv_bias=True, partial_rotary_factor=0.5),
    "stablelm-parallel": case("stablelm", use_parallel_residual=True, num_key_value_heads=2,
                              partial_rotary_factor=0.25),
    "stablelm-qk": case("stablelm", qk_layernorm=True, use_parallel_residual=True,
                        num_key_value_heads=2, num_attention_heads=4),
    "gpt2": case("gpt2", n_embd=32, n_layer=2, n_head=2, n_positions=320, n_inner=None,
                 **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads",
                                  "num_key_value_heads", "intermediate_size",
                                  "max_position_embeddings"), "absent")),
    "gpt_neox": case("gpt_neox", rotary_pct=0.5, hidden_act="gelu", **MHA),
    "gpt_neox-serial": case("gpt_neox", rotary_pct=0.25, use_parallel_residual=False, **MHA),
    "phi": case("phi", partial_rotary_factor=0.5),
    "falcon": case("falcon", multi_query=True, parallel_attn=True, alibi=False, bias=False,
                   intermediate_size="absent", **MHA),
    "falcon-new": case("falcon", new_decoder_architecture=True, num_kv_heads=2, alibi=False,
                       bias=False, intermediate_size="absent", **WIDE, **MHA),
    "exaone4": case("exaone4", num_hidden_layers=4, sliding_window=48, sliding_window_pattern=4),
    "exaone4-full": case("exaone4", sliding_window=None, layer_types=["full_attention"] * 2),
    "ernie4_5": case("ernie4_5", head_dim=32),
    "hunyuan_v1_dense": case("hunyuan_v1_dense", head_dim=16,
                             rope_parameters={"rope_type": "dynamic", "alpha": 1000.0,
                                              "factor": 1.0, "rope_theta": 10000.0}),
    "seed_oss": case("seed_oss", head_dim=32, attention_bias=True, attention_out_bias=False),
    "nemotron": case("nemotron", partial_rotary_factor=0.5, head_dim=16, hidden_act="relu2"),
    "olmoe": case("olmoe", num_experts=6, num_experts_per_tok=2),
    "granitemoe": case("granitemoe", num_local_experts=6, num_experts_per_tok=2,
                       embedding_multiplier=6.0, attention_multiplier=0.2,
                       residual_multiplier=0.6, logits_scaling=3.0),
    "deepseek_v2": case("deepseek_v2", **LATENT, q_lora_rank=None, topk_method="greedy"),
    "deepseek_v2-groups": case(
        "deepseek_v2", **LATENT, q_lora_rank=24, topk_method="group_limited_greedy", n_group=4,
        topk_group=2, rope_parameters={
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "mscale": 0.7,
            "mscale_all_dim": 0.9, "original_max_position_embeddings": 64}),
    # A model that sees images, of which the text runs.
    "gemma3": ("gemma3", {"text_config": {
        **BASE, "num_hidden_layers": 6, "head_dim": 16, "sliding_window": 48,
        "query_pre_attn_scalar": 16}, "mm_tokens_per_image": 4, "vision_config": dict(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
            image_size=28, patch_size=14)}),
    "olmo3": case("olmo3", num_hidden_layers=4, sliding_window=48, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                           "original_max_position_embeddings": 64,
                           "attention_factor": 1.2079441541679836}}),
    "glm": case("glm", head_dim=16, attention_bias=True, partial_rotary_factor=0.5),
}
ENCODED = 130  # tokens: more than two pages of the cache
ENCODERS = {
    "bert": case("bert", hidden_act="gelu", vocab_size=63, max_position_embeddings=160, **MHA),
    "roberta": case("roberta", hidden_act="gelu", pad_token_id=1, type_vocab_size=1, **MHA),
}
TEXTS = ["a small cat", "Zwei Wörter, nicht mehr?", "", "x" * 70, "one. two!"]


def randomize(model, generator):
    """Matrices keep the size of what passes through; vectors move away from 0 and 1."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            is_norm = any(n in name.lower() for n in ("norm", ".ln_", "ln_attn", "ln_mlp"))
            if p.dim() == 1 or (is_norm and p.dim() == 2):
                weight = is_norm and name.endswith("weight")
                # Norms that add 1 themselves are neutral at 0.
                neutral = p.mean().item() if weight else 0.0
                p.copy_(neutral + 0.25 * noise)
            elif "embed" in name or "wte" in name or "wpe" in name or "lm_head" in name:
                p.copy_(noise * (0.4 if "wpe" in name else 1.0))
            else:
                inputs = p.shape[0] if type(model).__name__.startswith("GPT2") else p.shape[-1]
                p.copy_(noise * 1.6 / inputs ** 0.5)
            p.copy_(p.to(torch.bfloat16).to(torch.float32))


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float()


def scale_logits(model):
    """Logits with a standard deviation of about 2, by the head or the last norm."""
    tokens = list(range(3, 60))
    factor = 2.0 / logits_of(model, tokens).std().item()
    head = model.get_output_embeddings().weight
    with torch.no_grad():
        head.mul_(factor)
        head.copy_(head.to(torch.bfloat16).float())


def greedy_of(model, prompt):
    tokens, gaps = list(prompt), []
    for _ in range(GREEDY):
        top = torch.topk(logits_of(model, tokens)[-1], 2)
        gaps.append((top.values[0] - top.values[1]).item())
        if gaps[-1] < GAP_MIN:
            return None, None
        tokens.append(int(top.indices[0]))
    return tokens[len(prompt):], gaps


def make(name, out, gguf):
    model_type, values = CASES[name]
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    generator = torch.Generator().manual_seed(seed)
    config = transformers.AutoConfig.for_model(model_type, **values)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    randomize(model, generator)
    scale_logits(model)
    rng = np.random.default_rng(seed)
    vocab = config.get_text_config().vocab_size
    for _ in range(200):
        short = rng.integers(3, vocab, SHORT).tolist()
        greedy, gaps = greedy_of(model, short)
        if greedy is not None:
            break
    else:
        raise SystemExit(f"{name}: no prompt without a tie was found")
    long = rng.integers(3, vocab, LONG).tolist()
    positions = sorted(rng.choice(LONG - 1, POSITIONS - 1, replace=False).tolist()) + [LONG - 1]
    short_logits = logits_of(model, short).numpy()
    long_logits = logits_of(model, long).numpy()[positions]

    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    blob = np.concatenate([short_logits.ravel(), long_logits.ravel()]).astype("<f4")
    blob.tofile(os.path.join(folder, "expected.f32"))
    expected = {
        "case": name, "model_type": model_type, "vocab_size": vocab,
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "short_prompt": short, "long_prompt": long, "long_positions": positions,
        "greedy_tokens": greedy, "greedy_gaps": [round(g, 4) for g in gaps],
        "expected_file": "expected.f32",
        "arrays": [{"name": "short_logits", "offset": 0, "shape": list(short_logits.shape)},
                   {"name": "long_logits", "offset": short_logits.size * 4,
                    "shape": list(long_logits.shape)}],
    }
    # Families that published GGUF files do not tell apart from others have no twin.
    if gguf and name not in ("cohere-qk", "gemma3", "glm"):
        import make_fixtures_gguf
        make_fixtures_gguf.write(os.path.join(folder, "model.gguf"), model, config)
        expected["gguf"] = [{"file": "model.gguf"}]
    model.to(torch.bfloat16).save_pretrained(folder)  # under the names of real checkpoints
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")
    print(f"{name}: std {blob.std():.2f}, smallest gap {min(gaps):.3f}")


def make_tokenizer(path):
    """A WordPiece vocabulary of letters."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, decoders
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + list(letters) + ["##" + c for c in letters] + list(",.?!") + ["cat", "##two"]
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)},
                                           unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(path)
    return tokenizer, tokens


def make_encoder(name, out, gguf):
    model_type, values = ENCODERS[name]
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
    config = transformers.AutoConfig.for_model(model_type, **values)
    config._attn_implementation = "eager"
    model = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    randomize(model, torch.Generator().manual_seed(seed))

    def states_of(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).last_hidden_state[0].double().numpy()

    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    ids = np.random.default_rng(seed).integers(5, config.vocab_size, ENCODED).tolist()
    parts = [states_of(ids)]
    expected = {"case": name, "hidden": config.hidden_size, "tokens": ids, "texts": [],
                "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}"}
    vocabulary = None
    if model_type == "bert":
        tokenizer, vocabulary = make_tokenizer(os.path.join(folder, "tokenizer.json"))
        for text in TEXTS:
            plain = tokenizer.encode(text).ids
            states = states_of(plain)
            expected["texts"].append({"text": text, "ids": plain})
            for vector in (states.mean(0), states[0], states[-1]):
                parts.append(vector / np.linalg.norm(vector))
    np.concatenate([p.ravel() for p in parts]).astype("<f4").tofile(
        os.path.join(folder, "expected.f32"))
    if gguf and vocabulary is not None:
        import make_fixtures_gguf
        make_fixtures_gguf.write_encoder(os.path.join(folder, "model.gguf"), model, config,
                                         vocabulary)
    model.to(torch.bfloat16).save_pretrained(folder)
    with open(os.path.join(folder, "encoder.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file)
        file.write("\n")
    print(f"{name}: std {parts[0].std():.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--gguf", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    only = [n for n in options.only.split(",") if n]
    for name in only or [*CASES, *ENCODERS]:
        (make_encoder if name in ENCODERS else make)(name, options.out, options.gguf)


if __name__ == "__main__":
    main()
