#!/usr/bin/env python3
"""Writes tests/data/gguf: tiny GGUF files and what they decode to, by the 'gguf' Python package.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0
    venv/bin/python tools/make_gguf_goldens.py

The reader under test shares no code with that package, so that a misread layout cannot hide.
  types.gguf        version 3, one tensor of every type that is read, 2 rows each
  types.f32         the values of those tensors, float32, in the file's order
  types-v2.gguf     the same bytes with version 2 in the header
  values.gguf       metadata of every value type; alignment 64
  quantize.gguf     float32 rows, and what the package rounds them to
  split-*.gguf      a set of three files, two tensors in each but the last, which has one
and the fuzzer's seeds, fuzz/corpus/gguf: a block of each type, values.gguf, a file of a set.
"""

import os
import shutil

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
FOLDER = os.path.join(ROOT, "tests", "data", "gguf")
SEEDS = os.path.join(ROOT, "fuzz", "corpus", "gguf")

# Type -> where its blocks hold float16 scales. The float types have none.
SCALES = {
    Type.F32: None, Type.F16: None, Type.BF16: None, Type.Q8_0: [0], Type.Q4_0: [0],
    Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [],
    Type.IQ1_S: [0], Type.IQ1_M: [], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0],
    Type.IQ3_XXS: [0], Type.IQ3_S: [0], Type.TQ1_0: [52], Type.TQ2_0: [64],
}
# Scales at the edges: zeros, subnormals, the smallest and largest normal numbers.
EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], dtype=np.uint16)


def rows_of(kind, random):
    """Two rows of every bit pattern that chance brings, with finite scales; uint8 [2, bytes]."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = 32 if block == 1 else max(4, 256 // block)
    data = random.integers(0, 256, (2 * blocks, size), dtype=np.uint8)
    if SCALES[kind] is None:
        view = data.view({4: np.uint32, 2: np.uint16}[size])
        exponent = {Type.F32: 0x7F800000, Type.F16: 0x7C00, Type.BF16: 0x7F80}[kind]
        view[(view & exponent) == exponent] = 0
        if kind == Type.F16:
            view[: len(EDGES), 0] = EDGES
    else:
        for at in SCALES[kind]:
            scales = random.normal(0, 0.1, 2 * blocks).astype(np.float16).view(np.uint16)
            pick = random.random(2 * blocks) < 0.4
            scales[pick] = random.choice(EDGES, pick.sum())
            data[:, at:at + 2] = scales[:, None].view(np.uint8)
        if kind == Type.MXFP4:  # 255 is no number
            data[:, 0] = np.minimum(data[:, 0], 254)
        if kind == Type.IQ1_M:  # the scale's exponent begins in the last nibble: not all ones
            data[:, 55] = np.where(data[:, 55] & 0x70 == 0x70, data[:, 55] & 0xBF, data[:, 55])
    return data.reshape(2, -1)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_types():
    random = np.random.default_rng(1)
    path = os.path.join(FOLDER, "types.gguf")
    writer = gguf.GGUFWriter(path, "test")
    values = []
    for kind in SCALES:
        data = rows_of(kind, random)
        writer.add_tensor("tensor." + kind.name, data, raw_dtype=kind)
        values.append(gguf.quants.dequantize(data, kind).astype(np.float32).ravel())
    finish(writer)
    np.concatenate(values).astype("<f4").tofile(os.path.join(FOLDER, "types.f32"))
    with open(path, "rb") as source, open(os.path.join(FOLDER, "types-v2.gguf"), "wb") as target:
        data = bytearray(source.read())
        data[4:8] = (2).to_bytes(4, "little")
        target.write(data)


def write_quantized():
    """Rows of bell-shaped weights, of outliers, of ties, of next to nothing and of zeros."""
    random = np.random.default_rng(3)
    rows = random.normal(0, 0.02, (6, 512)).astype(np.float32)
    rows[1, ::37] *= 20
    rows[2] = np.round(rows[2] * 100) / 64
    rows[3] *= 1e-6
    rows[4, 100:300] = 0
    rows[5] = np.abs(rows[5])
    writer = gguf.GGUFWriter(os.path.join(FOLDER, "quantize.gguf"), "test")
    writer.add_tensor("rows", rows)
    for kind in (Type.Q8_0, Type.Q4_0, Type.Q4_1):
        writer.add_tensor("rows." + kind.name, gguf.quants.quantize(rows, kind), raw_dtype=kind)
    finish(writer)


def write_values():
    writer = gguf.GGUFWriter(os.path.join(FOLDER, "values.gguf"), "test")
    writer.add_custom_alignment(64)
    for name, value in {"u8": 200, "i8": -100, "u16": 60000, "i16": -30000, "u32": 4000000000,
                        "i32": -2000000000, "u64": 2**63, "i64": -2**62}.items():
        kind = getattr(gguf.GGUFValueType, {"u": "UINT", "i": "INT"}[name[0]] + name[1:])
        writer.add_key_value("value." + name, value, kind)
    writer.add_float32("value.f32", 0.1)
    writer.add_float64("value.f64", -2.5)
    writer.add_bool("value.true", True)
    writer.add_bool("value.false", False)
    writer.add_string("value.string", "gr\u00fc\u00df dich")
    writer.add_array("array.string", ["a", "", "\u2581the", "\U0001f600"])
    writer.add_array("array.i32", [-1, 0, 7])
    writer.add_array("array.f32", [0.5, -1.25])
    writer.add_array("array.bool", [True, False, True])
    writer.add_tensor("small", np.arange(3, dtype=np.float32))
    writer.add_tensor("after.padding", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    finish(writer)


def write_split():
    writer = gguf.GGUFWriter(os.path.join(FOLDER, "split.gguf"), "test", split_max_tensors=2)
    writer.add_uint32("test.block_count", 5)
    for i in range(5):
        writer.add_tensor(f"blk.{i}.weight", np.full((2, 4), i, dtype=np.float32))
    finish(writer)


def write_seeds():
    random = np.random.default_rng(2)
    for kind in SCALES:
        writer = gguf.GGUFWriter(os.path.join(SEEDS, kind.name.lower() + ".gguf"), "t")
        size = gguf.GGML_QUANT_SIZES[kind][1]
        writer.add_tensor("w", rows_of(kind, random)[:, :size].copy(), raw_dtype=kind)
        finish(writer)
    for name in ("values.gguf", "split-00001-of-00003.gguf"):
        shutil.copy(os.path.join(FOLDER, name), SEEDS)


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    os.makedirs(SEEDS, exist_ok=True)
    write_types()
    write_quantized()
    write_values()
    write_split()
    write_seeds()
