#!/usr/bin/env python3
"""Measures `kvikk serve` beside other servers of the OpenAI API: the same model file, the same
requests (`kvikk bench serve`), a fresh server a run, rounds interleaved.

    python3 bench/serve_peers.py -m smollm2-135m --peer llama.cpp=build/bin/llama-server \\
        --clients 8 --rounds 3 -- --requests 48 --prompt 256 --shared 128 --answer 64
    python3 bench/serve_peers.py -m smollm2-135m --peer llama.cpp=... --speeds 1,2,4 \\
        --plot docs/goodput.svg -- --trace mooncake.jsonl --trace-length 0.05 --requests 60

--peer NAME=PROGRAM takes any that understands llama-server's options and can be given more than
once; --peer-flags NAME=FLAGS are its best ones. What follows `--` goes to `kvikk bench serve`. Two
threads each, room for --context tokens a client. --speeds runs a trace so much faster and draws the
goodput over the rate of requests. Needs only Python.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys

from engines import ROOT, Server, line_plot, model_path


def commands(args, model):
    slots = args.slots or args.clients
    threads = ["-t", str(args.threads)]
    out = {"kvikk": [args.kvikk, "serve", "-m", model, "--threads", str(args.threads),
                     "--parallel", str(slots), "--context", str(args.context),
                     *shlex.split(args.kvikk_flags)]}
    flags = dict(f.split("=", 1) for f in args.peer_flags)
    for peer in args.peer:
        name, program = peer.split("=", 1)
        out[name] = [program, "-m", model, *threads, "-np", str(slots), "-c",
                     str(args.context * slots), *shlex.split(flags.get(name, ""))]
    return out


def measure(args, command, more):
    with Server(command) as server:
        clients = [] if args.speeds else ["--clients", str(args.clients)]
        done = subprocess.run([args.kvikk, "bench", "serve", "--url", server.url, "--json",
                               *clients, *args.options, *more], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)["results"][0]


COLUMNS = (
    ("output tok/s", lambda r: r["output_tokens_per_second"], "{:.0f}"),
    ("first token, s (median)", lambda r: r["ttft_seconds"]["p50"], "{:.2f}"),
    ("(95%)", lambda r: r["ttft_seconds"]["p95"], "{:.2f}"),
    ("between tokens, ms (median)", lambda r: 1000 * r["itl_seconds"]["p50"], "{:.0f}"),
    ("longest", lambda r: 1000 * r["itl_seconds"]["max"], "{:.0f}"),
    ("requests/s within limits", lambda r: r["goodput_requests_per_second"], "{:.2f}"),
    ("failed", lambda r: r["failed"], "{:.0f}"),
)


def cell(values, form):
    low, high = form.format(min(values)), form.format(max(values))
    middle = form.format(statistics.median(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("-m", "--model", default="smollm2-135m", help="a catalog name or a GGUF file")
    ap.add_argument("--peer", action="append", default=[], metavar="NAME=PROGRAM")
    ap.add_argument("--peer-flags", action="append", default=[], metavar="NAME=FLAGS")
    ap.add_argument("--kvikk", default=os.path.join(ROOT, "build", "kvikk"))
    ap.add_argument("--kvikk-flags", default="")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--clients", type=int, default=8)
    ap.add_argument("--slots", type=int, default=0, help="computed side by side; 0: the clients")
    ap.add_argument("--context", type=int, default=2048, help="tokens of a request, at most")
    ap.add_argument("--speeds", default="", help="of a trace, a list")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--plot", default="", help="an SVG file, with --speeds")
    ap.add_argument("options", nargs="*", help="of kvikk bench serve, behind --")
    args = ap.parse_args()
    model = model_path(args.kvikk, args.model)
    servers = commands(args, model)
    speeds = args.speeds.split(",") if args.speeds else [""]
    print("| server | " + ("trace speed | " if args.speeds else "") +
          " | ".join(name for name, _, _ in COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1 + bool(args.speeds)) + "|", flush=True)
    points = {name: [(0.0, 0.0)] for name in servers}
    for speed in speeds:
        runs = {name: [] for name in servers}
        order = list(servers)
        for r in range(args.rounds):
            for name in order[r % len(order):] + order[:r % len(order)]:
                more = ["--trace-speed", speed] if speed else []
                runs[name].append(measure(args, servers[name], more))
        offered = max((run["requests"] - 1) / max(run["sending_seconds"], 1e-9)
                      for results in runs.values() for run in results)
        for name, results in runs.items():
            cells = [cell([value(r) for r in results], form) for _, value, form in COLUMNS]
            print(f"| {name} | " + (f"{speed} | " if speed else "") + " | ".join(cells) + " |",
                  flush=True)
            within = statistics.median(r["goodput_requests_per_second"] for r in results)
            points[name].append((offered, within))
    if args.plot:
        with open(args.plot, "w", encoding="utf-8") as file:
            file.write(line_plot(f"{os.path.basename(args.model)}: requests a second answered "
                                 "within limits", "requests a second", points, 2))


if __name__ == "__main__":
    main()
