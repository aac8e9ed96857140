#!/usr/bin/env python3
"""Measures kvikk beside its peers: same file, threads and cases, interleaved, medians, spread.

usage: bench/peers.py [--models NAME,...] [--depth N,...] [--rows N,...] [--threads N] [--rounds N]
                      [--peer-bench PATH [--peer-bench-flags FLAGS]] [--cpu-level L]
                      [--kv C,...] [--peer-kv T,...] [--peer-sweep PATH [--peer-sweep-kv T,...]]
                      [--scratch DIR] [--markdown FILE] [--plot FILE.svg]

The first peer is the llama.cpp inside the Python package llama-cpp-python, built for this machine
in a virtual environment under the scratch folder (outside the source tree). g++ 12 drops the stores
of its AMX tile configuration, and the result crashes; PEER_FLAGS keep them. It runs with its
weights repacked (no mmap); behind a long history with and without flash attention, and the faster
one counts. --peer-bench adds any program that takes llama-bench's options, such as ik_llama.cpp's
(--peer-bench-flags "-rtr 1 -fa 1"); --peer-sweep one that takes llama-sweep-bench's and measures
prefill and decode behind a history that it computes once (--peer-sweep-flags "-rtr -fa").

--kv, --peer-kv and --peer-sweep-kv name caches: each makes an engine of its own in the table, and
the ratio is the fastest kvikk to the fastest peer.

Each round runs every engine once, in turning order; a speed is the median over rounds, a ratio the
median of the rounds' ratios to the faster peer. The history of a depth is computed once by the
first peer and then read from the scratch folder. Needs python3-venv, cmake, g++ and the models
(`kvikk pull NAME`).
"""

import argparse
import functools
import json
import os
import re
import shlex
import statistics
import subprocess
import sys

from engines import ROOT, line_plot, model_path

PEER_PACKAGE = "llama-cpp-python"
PEER_FLAGS = "-fno-tree-dse -fno-dse -fno-tree-sra -fno-tree-forwprop"
DEFAULT_MODELS = "smollm2-135m,gemma-3-270m,qwen2.5-coder-0.5b,qwen2.5-coder-1.5b"

# Runs inside the peer's environment: argv is a JSON object, prints one JSON line.
PEER_PROGRAM = r"""
import ctypes, json, os, random, sys, time
import llama_cpp as L
A = json.loads(sys.argv[1])
quiet = L.llama_log_callback(lambda *a: None)
L.llama_log_set(quiet, ctypes.c_void_p(0))
L.llama_backend_init()
mp = L.llama_model_default_params()
mp.use_mmap = False  # run-time repacking needs it
started = time.time()
model = L.llama_model_load_from_file(A["model"].encode(), mp)
load = time.time() - started
GGML_TYPE_F16 = 1
vocabulary = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
rnd = random.Random(1)
results = []

def context(depth, rows, flash):
    cp = L.llama_context_default_params()
    cp.n_ctx = depth + max(A["prefill"], A["decode"] * rows) + 64
    cp.n_batch = cp.n_ubatch = max(A["prefill"], rows)
    cp.n_seq_max, cp.kv_unified = rows, True
    cp.n_threads = cp.n_threads_batch = A["threads"]
    cp.flash_attn_type = flash
    cp.type_k = cp.type_v = A["kv"]
    return L.llama_init_from_model(model, cp)

def feed(ctx, items):  # (token, position, sequence)
    batch = L.llama_batch_init(len(items), 0, 1)
    batch.n_tokens = len(items)
    for i, (token, position, sequence) in enumerate(items):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = sequence > 0 or i == len(items) - 1 or len(items) <= A["rows_max"]
    if L.llama_decode(ctx, batch) != 0:
        sys.exit("llama_decode failed")
    L.llama_synchronize(ctx)
    L.llama_batch_free(batch)

def token():
    return rnd.randrange(5, vocabulary // 2)

def fill(ctx, depth, name):
    if depth == 0:
        return
    path = f"{A['state']}-{depth}-{name}"
    n = ctypes.c_size_t(0)
    buffer = (L.llama_token * depth)()
    if os.path.exists(path):
        if L.llama_state_seq_load_file(ctx, path.encode(), 0, buffer, depth, ctypes.byref(n)):
            return
    step = A["prefill"]
    for i in range(0, depth, step):
        feed(ctx, [(token(), p, 0) for p in range(i, min(depth, i + step))])
    L.llama_state_seq_save_file(ctx, path.encode(), 0, buffer, depth)

def measure(depth, flash):
    speeds = {}
    ctx = context(depth, A["rows_max"], flash)
    memory = L.llama_get_memory(ctx)
    fill(ctx, depth, f"{flash}-{A['kv']}")
    feed(ctx, [(token(), depth, 0)])  # warm
    L.llama_memory_seq_rm(memory, 0, depth, -1)
    started = time.time()
    feed(ctx, [(token(), depth + i, 0) for i in range(A["prefill"])])
    speeds["prefill"] = A["prefill"] / (time.time() - started)
    L.llama_memory_seq_rm(memory, 0, depth, -1)
    for rows in A["rows"]:
        for r in range(1, rows):
            L.llama_memory_seq_cp(memory, 0, r, -1, -1)
        started = time.time()
        for i in range(A["decode"]):
            feed(ctx, [(token(), depth + i, r) for r in range(rows)])
        speeds[f"{rows} rows"] = rows * A["decode"] / (time.time() - started)
        L.llama_memory_seq_rm(memory, 0, depth, -1)
        for r in range(1, rows):
            L.llama_memory_seq_rm(memory, r, -1, -1)
    L.llama_free(ctx)
    return speeds

for depth in A["depth"]:
    best = measure(depth, -1)  # the program's own choice
    if depth > 0 and A["kv"] == GGML_TYPE_F16:
        for case, speed in measure(depth, 0).items():
            best[case] = max(best[case], speed)
    results += [{"depth": depth, "case": c, "speed": s} for c, s in best.items()]
print(json.dumps({"results": results, "load_seconds": load,
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


def case_of(result):
    kind = f"{result['rows']} rows" if result["kind"] == "rows" else result["kind"]
    return result["depth"], kind


# Of llama.cpp's caches, in ggml.
GGML_TYPES = {"f16": 1, "q4_0": 2, "q8_0": 8}


def run_kvikk(args, model, kv):
    level = ["--cpu-level", args.cpu_level] if args.cpu_level else []
    out = subprocess.run([args.kvikk, "bench", "-m", model, "--prefill", str(args.prefill),
                          "--decode", str(args.decode), "--depth", args.depth, "--rows", args.rows,
                          "--threads", str(args.threads), *level, *(["--kv", kv] if kv else []),
                          "--repeat", "1", "--json"],
                         check=True, capture_output=True, text=True)
    report = json.loads(out.stdout)
    return {"speed": {case_of(r): r["tokens_per_second"] for r in report["results"]},
            "percent": {case_of(r): r["percent_of_limit"] for r in report["results"]},
            "load_seconds": report["load_seconds"],
            "bandwidth": report["bandwidth_gb_per_second"], "report": report}


def run_llama_cpp(args, python, model, kv):
    name = re.sub("[^a-z0-9]", "-", os.path.basename(model).lower())
    rows = [int(r) for r in args.rows.split(",")]
    what = {"model": model, "threads": args.threads, "prefill": args.prefill,
            "decode": args.decode, "kv": GGML_TYPES[kv or "f16"],
            "depth": [int(d) for d in args.depth.split(",") if int(d) <= args.peer_depth_max],
            "rows": rows, "rows_max": max(rows), "state": os.path.join(args.scratch, name)}
    out = subprocess.run([python, "-c", PEER_PROGRAM, json.dumps(what)], capture_output=True,
                         text=True)
    if out.returncode != 0:
        sys.exit(f"llama.cpp failed on {model}: exit {out.returncode}\n{out.stderr[-2000:]}")
    report = json.loads(out.stdout.splitlines()[-1])
    speed = {(r["depth"], r["case"]): r["speed"] for r in report["results"]}
    speed.update({(d, "decode"): s for (d, c), s in list(speed.items()) if c == "1 rows"})
    return {"speed": speed, "load_seconds": report["load_seconds"], "system": report["system"]}


@functools.cache
def takes_depth(program):
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True)
    return "--n-depth" in help_text.stdout + help_text.stderr


def run_llama_bench(args, model):
    """Prefill at depth 0, decode at each depth, and rows as short prompts, of which only the last
    token gets logits: what programs of this kind can all measure."""
    common = [args.peer_bench, "-m", model, "-t", str(args.threads), "-mmp", "0", "-r", "1", "-o",
              "json", *shlex.split(args.peer_bench_flags)]
    speed = {}
    for depth in (int(d) for d in args.depth.split(",")):
        if depth == 0:
            flags = ["-p", str(args.prefill), "-n", str(args.decode)]
        elif takes_depth(args.peer_bench):
            flags = ["-p", str(args.prefill), "-n", str(args.decode), "-d", str(depth)]
        else:
            flags = ["-p", "0", "-n", "0", "-gp", f"{depth},{args.decode}"]
        out = subprocess.run([*common, *flags], capture_output=True, text=True)
        if out.returncode != 0:
            sys.exit(f"{args.peer_bench} failed: exit {out.returncode}\n{out.stderr[-2000:]}")
        for r in json.loads(out.stdout):
            kind = "prefill" if r["n_gen"] == 0 else "decode"
            speed[depth, kind] = r["avg_ts"]
        rows = [r for r in args.rows.split(",") if int(r) > 1]
        if depth == 0 and rows:
            out = subprocess.run([*common, "-p", ",".join(rows), "-n", "0", "-r", "8"],
                                 capture_output=True, text=True, check=True)
            for r in json.loads(out.stdout):
                speed[0, f"{r['n_prompt']} rows"] = statistics.median(r["samples_ts"])
    return {"speed": speed}


def run_sweep(args, model, kv):
    """Prefill and decode at each depth, from one pass over a history as long as the deepest."""
    depths = [int(d) for d in args.depth.split(",")]
    keys, _, values = kv.partition("/")
    flags = shlex.split(args.peer_sweep_flags)
    if kv:
        flags += ["-ctk", keys, "-ctv", values or keys]
    out = subprocess.run([args.peer_sweep, "-m", model, "-t", str(args.threads), "-c",
                          str(max(depths) + args.prefill), "-ub", str(args.prefill), "-n",
                          str(args.decode), "--no-mmap", "--output-format", "jsonl", *flags],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    speed = {}
    for line in out.stdout.splitlines():
        if line.startswith("{") and (r := json.loads(line))["n_kv"] in depths:
            speed[r["n_kv"], "prefill"] = r["speed_pp"]
            speed[r["n_kv"], "decode"] = r["speed_tg"]
    if out.returncode != 0 or not speed:
        sys.exit(f"{args.peer_sweep} failed: exit {out.returncode}\n{out.stdout[-2000:]}")
    return {"speed": speed}


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def table_lines(model, runs):
    """Lines of the table, and each engine's median by case."""
    lines, medians = [], {}
    engines = list(runs)
    ours = [e for e in engines if e.startswith("kvikk")]
    for depth, kind in runs[ours[0]][0]["speed"]:
        key = depth, kind
        if kind == "1 rows":
            continue
        there = [e for e in engines if all(key in r["speed"] for r in runs[e])]
        values = {e: [r["speed"][key] for r in runs[e]] for e in there}
        medians[key] = {e: statistics.median(v) for e, v in values.items()}
        peers = [values[e] for e in there if e not in ours]
        ratio = ""
        if peers:
            best = zip(zip(*(values[e] for e in ours)), zip(*peers))
            ratio = f"{statistics.median(max(k) / max(p) for k, p in best):.2f}"
        percent = statistics.median(r["percent"][key] for r in runs[ours[0]])
        cells = [spread(values[e]) if e in values else "" for e in engines]
        lines.append(f"| {model} | {kind} at {depth} | " + " | ".join(cells) +
                     f" | {ratio} | {percent:.0f}% |")
    cells = [f"{statistics.median(r['load_seconds'] for r in runs[e]):.2f} s"
             if "load_seconds" in runs[e][0] else "" for e in engines]
    lines.append(f"| {model} | load | " + " | ".join(cells) + " | | |")
    return lines, medians


def decode_lines(medians):
    """Of each engine, its decode speed over the depth."""
    lines = {}
    for (depth, kind), speeds in sorted(medians.items()):
        if kind == "decode":
            for engine, speed in speeds.items():
                lines.setdefault(engine, []).append((depth, speed))
    return lines


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--models", default=DEFAULT_MODELS, help="catalog names or GGUF files")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--prefill", type=int, default=512)
    ap.add_argument("--decode", type=int, default=64)
    ap.add_argument("--depth", default="0", help="tokens in the cache before, a list")
    ap.add_argument("--rows", default="1,4,8", help="sequences side by side, a list")
    ap.add_argument("--cpu-level", default="", help="of kvikk; the best if not given")
    ap.add_argument("--kvikk", default=os.path.join(ROOT, "build", "kvikk"))
    ap.add_argument("--peer-python", default="", help="an interpreter that has llama.cpp already")
    ap.add_argument("--peer-bench", default="", help="a second peer: a llama-bench program")
    ap.add_argument("--peer-bench-flags", default="", help="its best flags")
    ap.add_argument("--peer-bench-name", default="ik_llama.cpp")
    ap.add_argument("--kv", default="", help="of kvikk, a list; the exact one if not given")
    ap.add_argument("--peer-kv", default="", help="of llama.cpp: f16, q8_0, q4_0, a list")
    ap.add_argument("--peer-depth-max", type=int, default=1 << 30,
                    help="of llama.cpp, whose long histories take many minutes to compute")
    ap.add_argument("--peer-sweep", default="", help="a llama-sweep-bench program")
    ap.add_argument("--peer-sweep-flags", default="", help="its best flags")
    ap.add_argument("--peer-sweep-kv", default="", help="a list; KEYS/VALUES where they differ")
    ap.add_argument("--scratch", default=os.path.expanduser("~/.cache/kvikk/bench"))
    ap.add_argument("--markdown", default="", help="also write the table to this file")
    ap.add_argument("--plot", default="", help="draw decode over depth of the last model")
    args = ap.parse_args()
    os.makedirs(args.scratch, exist_ok=True)
    python = args.peer_python or peer_python(args.scratch)
    engines = {}

    def add(name, caches, run):
        for kv in caches.split(","):
            engines[f"{name} {kv}".strip()] = functools.partial(run, kv=kv)

    add("kvikk", args.kv, lambda path, kv: run_kvikk(args, path, kv))
    add("llama.cpp", args.peer_kv, lambda path, kv: run_llama_cpp(args, python, path, kv))
    if args.peer_bench:
        engines[args.peer_bench_name] = lambda path: run_llama_bench(args, path)
    if args.peer_sweep:
        add(args.peer_bench_name, args.peer_sweep_kv, lambda path, kv: run_sweep(args, path, kv))
    lines = ["| model | case | " + " | ".join(f"{e}, tok/s" for e in engines) +
             " | ratio | of limit |", "|---" * (len(engines) + 4) + "|"]
    print("\n".join(lines), flush=True)
    for name in args.models.split(","):
        path = model_path(args.kvikk, name)
        runs = {engine: [] for engine in engines}
        for r in range(args.rounds):
            order = list(engines)
            for engine in order[r % len(order):] + order[:r % len(order)]:
                runs[engine].append(engines[engine](path))
            print(f"{name}: round {r + 1} of {args.rounds}", file=sys.stderr)
        more, medians = table_lines(os.path.basename(name), runs)
        lines += more
        print("\n".join(more), flush=True)
    ours, llama_cpp = (next(runs[e] for e in engines if e.startswith(name))
                       for name in ("kvikk", "llama.cpp"))
    bandwidth = statistics.median(r["bandwidth"] for r in ours)
    report = ours[0]["report"]
    footer = (f"\nMedian (lowest-highest) of {args.rounds} interleaved rounds, {args.threads} "
              f"threads, kvikk's kernels: {report['cpu_level']}. Ratio: median of the rounds' "
              f"ratios to the faster peer. Of limit: what kvikk reaches of the time to read what a "
              f"step needs or to compute it. In the same run memory gave {bandwidth:.1f} GB/s. "
              f"Machine: {report['machine']['cpu']}, {report['machine']['cores']} cores. "
              f"llama.cpp: {llama_cpp[0]['system']}\n")
    print(footer)
    if args.markdown:
        with open(args.markdown, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n" + footer)
    if args.plot:
        with open(args.plot, "w", encoding="utf-8") as f:
            f.write(line_plot(f"{os.path.basename(name)}: decode, tokens per second",
                              "tokens in the cache", decode_lines(medians)))


if __name__ == "__main__":
    main()
