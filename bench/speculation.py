#!/usr/bin/env python3
"""Measures what guessing ahead (--spec) is worth: the same requests with each drafter and without,
interleaved, and whether the answers are the same bytes.

    python3 bench/speculation.py -m qwen2.5-coder-1.5b --spec suffix --spec model:qwen2.5-coder-0.5b
    python3 bench/speculation.py -m qwen2.5-coder-0.5b --requests my.jsonl --repeat 5

--requests takes files of `kvikk eval batch`; without it bench/copy_heavy.jsonl, work that repeats
much of its prompt. Files whose lines have a "category" get a row for each. Needs only Python.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read_groups(paths):
    """Requests by category, in the files' order."""
    groups = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                request = json.loads(line)
                name = request.pop("category", os.path.basename(path).removesuffix(".jsonl"))
                groups.setdefault(name, []).append(request)
    return groups


def answer(args, folder, requests, spec):
    """Seconds of decoding and what was said, one request at a time."""
    source, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in requests)
    command = [args.program, "eval", "batch", "-m", args.model, "--requests", source, "--out", out,
               "--concurrency", str(args.concurrency), "--spec", spec, "--json"]
    if args.kv:
        command += ["--kv", args.kv]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    with open(out, encoding="utf-8") as file:
        return json.loads(done.stdout), file.read()


def measure(args, folder, name, requests):
    specs = ["none", *args.spec]
    runs = {spec: [] for spec in specs}
    said = {}
    for _ in range(args.repeat):
        for spec in specs:  # interleaved: a busy minute of the machine meets all alike
            figures, text = answer(args, folder, requests, spec)
            runs[spec].append(figures)
            if said.setdefault("none", text) != text:
                sys.exit(f"{name}: the answers with --spec {spec} are not those without")
    rows = []
    for spec in args.spec:
        ratios = [a["completion_tokens_per_second"] / b["completion_tokens_per_second"]
                  for a, b in zip(runs[spec], runs["none"])]
        last = runs[spec][-1]
        drafted = last["drafted_tokens"]
        rows.append({
            "category": name, "spec": spec, "requests": len(requests),
            "tokens": last["completion_tokens"],
            "plain": statistics.median(r["completion_tokens_per_second"] for r in runs["none"]),
            "tokens_per_second":
                statistics.median(r["completion_tokens_per_second"] for r in runs[spec]),
            "ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios),
            "accepted": last["accepted_tokens"] / drafted if drafted else 0.0,
            "drafted": drafted})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--requests", action="append")
    parser.add_argument("--spec", action="append")
    parser.add_argument("--kv", default="")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "kvikk"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.spec = args.spec or ["auto"]
    groups = read_groups(args.requests or [os.path.join(ROOT, "bench", "copy_heavy.jsonl")])
    if not args.json:
        print("| requests | spec | plain tok/s | with | ratio (min - max) | guessed | right |\n"
              "|---|---|---|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, requests in groups.items():
            for row in measure(args, folder, name, requests):
                rows.append(row)
                if not args.json:
                    print(f"| {row['category']} | {row['spec'].split('/')[-1]} | "
                          f"{row['plain']:.1f} | {row['tokens_per_second']:.1f} | "
                          f"{row['ratio']:.2f} ({row['min']:.2f} - {row['max']:.2f}) | "
                          f"{row['drafted']:,} | {100 * row['accepted']:.0f}% |", flush=True)
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
