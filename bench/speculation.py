#!/usr/bin/env python3
"""Measures what guessing ahead (--spec) is worth: the same requests with each drafter and without,
interleaved, and whether the answers are the same bytes.

    python3 bench/speculation.py -m qwen2.5-coder-1.5b --spec suffix --spec model:qwen2.5-coder-0.5b
    python3 bench/speculation.py -m qwen2.5-coder-0.5b --requests my.jsonl --repeat 5

--requests takes files of `kvikk eval batch`, and spec_bench and humaneval as they are published;
without it bench/copy_heavy.jsonl, which repeats much of its prompts, and bench/spec_prompts.jsonl,
one request of each kind of work. Lines that have a "category" get a row for each; --limit takes the
first of each. --peer PROGRAM does the same with a llama-server, without guesses and with
--peer-flags, which must name its draft model (the two loaded at the same time). Needs only Python.
"""

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from engines import ROOT, Server, model_path


def as_request(row):
    """A line of a benchmark's file as a request of `kvikk eval batch`."""
    if "turns" in row:  # spec_bench: the first turn
        return {"messages": [{"role": "user", "content": row["turns"][0]}]}
    if "task_id" in row:  # humaneval
        return {"prompt": row["prompt"]}
    return row


def read_groups(paths, limit, tokens):
    """Requests by category, in the files' order."""
    groups = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                name = row.pop("category", os.path.basename(path).removesuffix(".jsonl"))
                group = groups.setdefault(name, [])
                if len(group) < limit:
                    group.append({"max_tokens": tokens, "temperature": 0, **as_request(row)})
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


class PeerServers:
    """A llama-server that guesses and one that does not."""

    def __init__(self, args):
        command = [args.peer, "-m", model_path(args.program, args.model), "-np", "1", "-c", "8192"]
        self.commands = {"none": command, "peer": command + shlex.split(args.peer_flags)}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.servers = {spec: stack.enter_context(Server(command))
                            for spec, command in self.commands.items()}
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def answer(self, requests, spec):
        """As answer() of kvikk; what was said, too."""
        tokens, drafted, accepted, said = 0, 0, 0, []
        started = time.monotonic()
        for request in requests:
            chat = "messages" in request
            done = self.servers[spec].post("/v1/chat/completions" if chat else "/v1/completions",
                                           {**request, "cache_prompt": False})
            tokens += done["usage"]["completion_tokens"]
            drafted += done.get("timings", {}).get("draft_n", 0)
            accepted += done.get("timings", {}).get("draft_n_accepted", 0)
            choice = done["choices"][0]
            said.append(choice["message"]["content"] if chat else choice["text"])
        return {"completion_tokens_per_second": tokens / (time.monotonic() - started),
                "completion_tokens": tokens, "drafted_tokens": drafted,
                "accepted_tokens": accepted}, said


def measure_peer(args, peer, name, requests):
    runs = {"none": [], "peer": []}
    texts = {}
    for _ in range(args.repeat):
        for spec in runs:
            figures, texts[spec] = peer.answer(requests, spec)
            runs[spec].append(figures)
    alike = sum(a == b for a, b in zip(*texts.values()))
    print(f"{name}: the peer's answers with and without: {alike} of {len(requests)} alike",
          file=sys.stderr)
    return summary(args, name, requests, "peer", runs)


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
    return [summary(args, name, requests, spec, runs) for spec in args.spec]


def summary(args, name, requests, spec, runs):
    """A row of the table: `spec` beside "none"."""
    ratios = [a["completion_tokens_per_second"] / b["completion_tokens_per_second"]
              for a, b in zip(runs[spec], runs["none"])]
    last = runs[spec][-1]
    drafted = last["drafted_tokens"]
    return {"category": name, "requests": len(requests), "tokens": last["completion_tokens"],
            "spec": os.path.basename(args.peer) if spec == "peer" else spec,
            "plain": statistics.median(r["completion_tokens_per_second"] for r in runs["none"]),
            "tokens_per_second":
                statistics.median(r["completion_tokens_per_second"] for r in runs[spec]),
            "ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios),
            "accepted": last["accepted_tokens"] / drafted if drafted else 0.0,
            "drafted": drafted}


def plot(rows, model):
    """The ratio of each category as a bar with its range, a colour for each drafter."""
    specs = list(dict.fromkeys(row["spec"] for row in rows))
    names = list(dict.fromkeys(row["category"] for row in rows))
    most = max(1.5, max(row["max"] for row in rows))
    left, bar, gap, width = 130, 12, 10, 480
    group = bar * len(specs) + gap
    height = 60 + group * len(names) + 30
    x = lambda ratio: left + width * ratio / most
    colours = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="18">tokens per second with guesses / without, {model}</text>']
    for i, spec in enumerate(specs):
        out.append(f'<text x="{left + 150 * i}" y="38" fill="{colours[i % 4]}">'
                   f'{spec.split("/")[-1]}</text>')
    for i, name in enumerate(names):
        y = 50 + group * i
        out.append(f'<text x="{left - 8}" y="{y + bar}" text-anchor="end">{name}</text>')
        for row in (r for r in rows if r["category"] == name):
            at = y + bar * specs.index(row["spec"])
            middle = at + bar / 2
            out.append(f'<rect x="{left}" y="{at}" width="{x(row["ratio"]) - left:.1f}" '
                       f'height="{bar - 2}" fill="{colours[specs.index(row["spec"]) % 4]}"/>'
                       f'<path d="M{x(row["min"]):.1f} {middle}H{x(row["max"]):.1f}" '
                       'stroke="black"/>'
                       f'<text x="{x(row["max"]) + 4:.1f}" y="{at + bar - 2}">{row["ratio"]:.2f}'
                       '</text>')
    out.append(f'<path d="M{x(1):.1f} 44V{height - 24}" stroke="black" stroke-dasharray="3 3"/>'
               f'<text x="{x(1):.1f}" y="{height - 10}" text-anchor="middle">1</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="qwen2.5-coder-0.5b")
    parser.add_argument("--requests", action="append")
    parser.add_argument("--spec", action="append")
    parser.add_argument("--kv", default="")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--limit", type=int, default=8, help="requests of a category")
    parser.add_argument("--tokens", type=int, default=128,
                        help="of an answer, where a request does not say")
    parser.add_argument("--plot", help="an SVG file for the ratios")
    parser.add_argument("--peer", help="a llama-server program")
    parser.add_argument("--peer-flags", default="", help="with which it guesses")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "kvikk"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.spec = args.spec or ["auto"]
    files = args.requests or [os.path.join(ROOT, "bench", name)
                              for name in ("copy_heavy.jsonl", "spec_prompts.jsonl")]
    groups = read_groups(files, args.limit, args.tokens)
    if not args.json:
        print("| requests | spec | plain tok/s | with | ratio (min - max) | guessed | right |\n"
              "|---|---|---|---|---|---|---|")
    rows = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        peer = stack.enter_context(PeerServers(args)) if args.peer else None
        for name, requests in groups.items():
            measured = measure(args, folder, name, requests)
            if peer is not None:
                measured.append(measure_peer(args, peer, name, requests))
            for row in measured:
                rows.append(row)
                if not args.json:
                    print(f"| {row['category']} | {row['spec'].split('/')[-1]} | "
                          f"{row['plain']:.1f} | {row['tokens_per_second']:.1f} | "
                          f"{row['ratio']:.2f} ({row['min']:.2f} - {row['max']:.2f}) | "
                          f"{row['drafted']:,} | {100 * row['accepted']:.0f}% |", flush=True)
    if args.json:
        print(json.dumps(rows))
    if args.plot:
        with open(args.plot, "w", encoding="utf-8") as file:
            file.write(plot(rows, args.model))


if __name__ == "__main__":
    main()
