"""Writes a tiny GGUF model with a tokenizer and a chat template, so that every verb can be tested
without a real model. It has one token for each byte and random weights: its answers are noise of
any bytes, which is what a test of output wants."""

import random
import struct

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_names():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {}, 0
    for byte in range(256):
        names[byte] = chr(byte) if byte in printable else chr(256 + extra)
        extra += byte not in printable
    return [names[byte] for byte in range(256)]


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def tiny_model(path, template=TEMPLATE, context=512, weights=True, tokenizer=True, seed=1,
               special=SPECIAL):
    """A llama with one layer. Token n < 256 is byte n; 258 ends an answer."""
    rnd = random.Random(seed)
    hidden, feed_forward, heads, kv_heads, head_dim = 64, 96, 4, 2, 16
    names = byte_names()
    tokens = names + special + [names[0] * 2]  # the one merge: two NUL bytes
    u32 = lambda n: struct.pack("<I", n)
    keys = [
        key("general.architecture", STRING, string("llama")),
        key("general.name", STRING, string("Tiny")),
        key("llama.embedding_length", U32, u32(hidden)),
        key("llama.block_count", U32, u32(1)),
        key("llama.feed_forward_length", U32, u32(feed_forward)),
        key("llama.attention.head_count", U32, u32(heads)),
        key("llama.attention.head_count_kv", U32, u32(kv_heads)),
        key("llama.attention.key_length", U32, u32(head_dim)),
        key("llama.context_length", U32, u32(context)),
        key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
        key("tokenizer.ggml.model", STRING, string("gpt2")),
        key("tokenizer.ggml.pre", STRING, string("gpt-2")),
        key("tokenizer.ggml.tokens", ARRAY, array(STRING, [string(t) for t in tokens])),
        key("tokenizer.ggml.token_type", ARRAY,
            array(I32, [struct.pack("<i", 3 if t in special else 1) for t in tokens])),
        key("tokenizer.ggml.merges", ARRAY, array(STRING, [string(names[0] + " " + names[0])])),
        key("tokenizer.ggml.eos_token_id", U32, u32(258)),
        key("tokenizer.ggml.bos_token_id", U32, u32(256)),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
    ]
    if template is not None:
        keys.append(key("tokenizer.chat_template", STRING, string(template)))
    if not tokenizer:
        keys = [k for k in keys if not k[8:].startswith(b"tokenizer.")]
    matrices = {
        "token_embd.weight": (hidden, len(tokens)),
        "blk.0.attn_q.weight": (hidden, heads * head_dim),
        "blk.0.attn_k.weight": (hidden, kv_heads * head_dim),
        "blk.0.attn_v.weight": (hidden, kv_heads * head_dim),
        "blk.0.attn_output.weight": (heads * head_dim, hidden),
        "blk.0.ffn_gate.weight": (hidden, feed_forward),
        "blk.0.ffn_up.weight": (hidden, feed_forward),
        "blk.0.ffn_down.weight": (feed_forward, hidden),
        "output.weight": (hidden, len(tokens)),
    }
    vectors = ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"]
    if not weights:
        matrices, vectors = {}, []
    infos, data = [], b""
    for name in [*matrices, *vectors]:
        shape = matrices.get(name, (hidden,))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if name in vectors else [rnd.gauss(0, 0.5) for _ in range(count)]
        infos.append(string(name) + struct.pack("<I", len(shape)) +
                     b"".join(struct.pack("<Q", n) for n in shape) +
                     struct.pack("<IQ", 0, len(data)))
        data += struct.pack(f"<{count}f", *values)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys))
    head += b"".join(keys) + b"".join(infos)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)
    return path
