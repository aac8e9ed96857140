#!/usr/bin/env python3
"""Measures kvikk beside llama.cpp: same file and threads, one interleaved run, medians, spread.

usage: bench/peers.py [--models NAME,...] [--threads N] [--rounds N] [--scratch DIR]
                      [--markdown FILE]

The peer is the llama.cpp inside the Python package llama-cpp-python, built for this machine in a
virtual environment under the scratch folder (outside the source tree). g++ 12 drops the stores of
its AMX tile configuration, and the result crashes; PEER_FLAGS keep them. Each round runs every
engine once, in alternating order; a speed is the median over rounds. Needs python3-venv, cmake, g++
and the models (`kvikk pull NAME`).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER_PACKAGE = "llama-cpp-python"
PEER_FLAGS = "-fno-tree-dse -fno-dse -fno-tree-sra -fno-tree-forwprop"
DEFAULT_MODELS = "smollm2-135m,gemma-3-270m,qwen2.5-coder-0.5b,qwen2.5-coder-1.5b"

# Runs inside the peer's environment: argv is model, threads, prefill, decode; prints one JSON line.
PEER_PROGRAM = r"""
import ctypes, json, random, sys, time
import llama_cpp as L
model_path, threads, prefill, decode = sys.argv[1], *map(int, sys.argv[2:5])
quiet = L.llama_log_callback(lambda *a: None)
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()
mp = L.llama_model_default_params()
mp.use_mmap = False  # run-time repacking needs it
started = time.time()
model = L.llama_model_load_from_file(model_path.encode(), mp)
load = time.time() - started
cp = L.llama_context_default_params()
cp.n_ctx, cp.n_batch, cp.n_ubatch = prefill + decode + 64, prefill, prefill
cp.n_threads = cp.n_threads_batch = threads
ctx = L.llama_init_from_model(model, cp)
vocabulary = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
memory = L.llama_get_memory(ctx)
rnd = random.Random(1)
tokens = [rnd.randrange(5, vocabulary // 2) for _ in range(prefill + decode)]

def run(ids):
    array = (L.llama_token * len(ids))(*ids)
    if L.llama_decode(ctx, L.llama_batch_get_one(array, len(ids))) != 0:
        sys.exit("llama_decode failed")
    L.llama_synchronize(ctx)

def timed(first, count, step):
    started = time.time()
    for i in range(first, first + count, step):
        run(tokens[i:i + step])
    return count / (time.time() - started)

run(tokens[:8])  # warm
L.llama_memory_clear(memory, True)
p = timed(0, prefill, prefill)
L.llama_memory_clear(memory, True)
run(tokens[:1])
d = timed(1, decode, 1)
print(json.dumps({"prefill": p, "decode": d, "load_seconds": load,
                  "system": L.llama_print_system_info().decode().strip()}))
"""


def peer_python(scratch):
    """The peer's interpreter; builds the peer on first use."""
    venv = os.path.join(scratch, "llama-cpp-python")
    python = os.path.join(venv, "bin", "python")
    done = os.path.join(venv, "built")
    if os.path.exists(done):
        return python
    print(f"building {PEER_PACKAGE} in {venv} (a few minutes)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    env = dict(os.environ, CXXFLAGS=PEER_FLAGS, CMAKE_ARGS="-DGGML_NATIVE=ON")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-binary",
                    PEER_PACKAGE, PEER_PACKAGE], check=True, env=env)
    open(done, "w").close()
    return python


def model_path(kvikk, name):
    if os.path.exists(name):
        return name
    models = json.loads(subprocess.run([kvikk, "models", "--json"], check=True,
                                       capture_output=True, text=True).stdout)
    for entry in models:
        if entry["name"] == name and entry.get("path"):
            return entry["path"]
    sys.exit(f"model '{name}' is not here: run 'kvikk pull {name}' first")


def run_kvikk(kvikk, model, threads, prefill, decode):
    out = subprocess.run([kvikk, "bench", "-m", model, "--prefill", str(prefill), "--decode",
                          str(decode), "--depth", "0", "--rows", "1", "--threads", str(threads),
                          "--repeat", "1", "--json"], check=True, capture_output=True, text=True)
    report = json.loads(out.stdout)
    speed = {r["kind"]: r["tokens_per_second"] for r in report["results"] if r["depth"] == 0}
    return {"prefill": speed["prefill"], "decode": speed["decode"],
            "load_seconds": report["load_seconds"],
            "bandwidth": report["bandwidth_gb_per_second"], "report": report}


def run_peer(python, model, threads, prefill, decode):
    out = subprocess.run([python, "-c", PEER_PROGRAM, model, str(threads), str(prefill),
                          str(decode)], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"the peer failed on {model}: exit {out.returncode}\n{out.stderr[-2000:]}")
    return json.loads(out.stdout.splitlines()[-1])


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--models", default=DEFAULT_MODELS, help="catalog names or GGUF files")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--prefill", type=int, default=512)
    ap.add_argument("--decode", type=int, default=64)
    ap.add_argument("--kvikk", default=os.path.join(ROOT, "build", "kvikk"))
    ap.add_argument("--peer-python", default="", help="an interpreter that has the peer already")
    ap.add_argument("--scratch", default=os.path.expanduser("~/.cache/kvikk/bench"))
    ap.add_argument("--markdown", default="", help="also write the table to this file")
    args = ap.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    python = args.peer_python or peer_python(args.scratch)
    lines = ["| model | case | kvikk tok/s | llama.cpp tok/s | ratio |", "|---|---|---|---|---|"]
    for name in args.models.split(","):
        path = model_path(args.kvikk, name)
        ours, theirs = [], []
        for r in range(args.rounds):
            for engine in ((0, 1) if r % 2 == 0 else (1, 0)):
                if engine == 0:
                    ours.append(run_kvikk(args.kvikk, path, args.threads, args.prefill,
                                          args.decode))
                else:
                    theirs.append(run_peer(python, path, args.threads, args.prefill, args.decode))
            print(f"{name}: round {r + 1} of {args.rounds}", file=sys.stderr)
        for case, key in ((f"prefill {args.prefill}", "prefill"),
                          (f"decode {args.decode}", "decode")):
            a, b = [x[key] for x in ours], [x[key] for x in theirs]
            ratio = statistics.median(x / y for x, y in zip(a, b))
            model = re.sub(".*/", "", name)
            lines.append(f"| {model} | {case} | {spread(a)} | {spread(b)} | {ratio:.2f} |")
        a, b = [x["load_seconds"] for x in ours], [x["load_seconds"] for x in theirs]
        lines.append(f"| {re.sub('.*/', '', name)} | load, seconds | {statistics.median(a):.2f} | "
                     f"{statistics.median(b):.2f} | |")
        print("\n".join(lines[-3:]), flush=True)
    bandwidth = statistics.median(x["bandwidth"] for x in ours)
    machine = ours[0]["report"].get("machine")
    footer = (f"\nMedian (lowest-highest) of {args.rounds} interleaved rounds, "
              f"{args.threads} threads, "
              f"depth 0; ratio: median of the rounds' ratios. Memory bandwidth in the same run: "
              f"{bandwidth:.1f} GB/s. Machine: {json.dumps(machine)}. "
              f"Peer: {theirs[0]['system']}\n")
    text = "\n".join(lines) + "\n" + footer
    print(text)
    if args.markdown:
        with open(args.markdown, "w") as f:
            f.write(text)


if __name__ == "__main__":
    main()
