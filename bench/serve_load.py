#!/usr/bin/env python3
"""Measures a server of the OpenAI API with streaming clients: serve_load.py --url URL

Closed loop by default (each client asks again when it was answered), or --rate for arrivals at
random times (Poisson). Prompts are numbered words of about --prompt tokens, of which --shared are
the same in all. Prints tokens per second of all clients, the time to the first token, times between
tokens and how long the longest was, as a table or --json. Works against any such server, so that
several can be compared with one tool; standard library only.
"""

import argparse
import http.client
import json
import random
import statistics
import threading
import time
import urllib.parse


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", default="")
    parser.add_argument("--key", default="none")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--requests", type=int, default=32, help="of all clients together")
    parser.add_argument("--rate", type=float, default=0, help="requests a second; 0: closed loop")
    parser.add_argument("--prompt", type=int, default=256, help="tokens, roughly")
    parser.add_argument("--shared", type=int, default=128, help="of them, the same in all prompts")
    parser.add_argument("--answer", type=int, default=64, help="tokens")
    parser.add_argument("--long", type=int, default=0,
                        help="every eighth prompt has this many tokens instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def prompt_of(index, o):
    """Numbers are about three tokens each with their space in most vocabularies."""
    rnd = random.Random(o.seed * 100003 + index)
    tokens = o.long if o.long and index % 8 == 7 else o.prompt
    shared = random.Random(o.seed)
    words = [str(shared.randrange(10, 100)) for _ in range(o.shared // 3)]
    words += [str(rnd.randrange(10, 100)) for _ in range(max(0, tokens - o.shared) // 3)]
    return "Go on: " + " ".join(words)


def ask(index, o):
    """One request: when it was sent, and when each piece of its answer came."""
    url = urllib.parse.urlsplit(o.url)
    body = {"prompt": prompt_of(index, o), "max_tokens": o.answer, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}}
    if o.model:
        body["model"] = o.model
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
    sent = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json", "Authorization": f"Bearer {o.key}"})
    response = connection.getresponse()
    result = {"sent": sent, "status": response.status, "times": [], "tokens": 0, "prompt": 0}
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        now = time.monotonic()
        event = json.loads(line[6:])
        if event.get("choices") and event["choices"][0].get("text"):
            result["times"].append(now)
        if event.get("usage"):
            result["tokens"] = event["usage"]["completion_tokens"]
            result["prompt"] = event["usage"]["prompt_tokens"]
    result["end"] = time.monotonic()
    connection.close()
    return result


def run(o):
    results, lock, numbers = [], threading.Lock(), iter(range(o.requests))
    rnd = random.Random(o.seed)

    def take():
        with lock:
            return next(numbers, None)

    def keep(index):
        result = ask(index, o)
        with lock:
            results.append(result)

    def client():
        while (index := take()) is not None:
            keep(index)

    threads = []
    if o.rate > 0:
        while (index := take()) is not None:
            threads.append(threading.Thread(target=keep, args=(index,)))
            threads[-1].start()
            time.sleep(rnd.expovariate(o.rate))
    else:
        threads = [threading.Thread(target=client) for _ in range(o.clients)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    return results


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def report(results):
    good = [r for r in results if r["status"] == 200 and r["times"]]
    first = [r["times"][0] - r["sent"] for r in good]
    gaps = [b - a for r in good for a, b in zip(r["times"], r["times"][1:])]
    span = max(r["end"] for r in results) - min(r["sent"] for r in results)
    return {
        "requests": len(results), "failed": len(results) - len(good),
        "prompt_tokens": sum(r["prompt"] for r in good),
        "output_tokens_per_second": sum(r["tokens"] for r in good) / span,
        "ttft_median_seconds": quantile(first, 0.5), "ttft_p95_seconds": quantile(first, 0.95),
        "gap_median_seconds": quantile(gaps, 0.5), "gap_p99_seconds": quantile(gaps, 0.99),
        "gap_max_seconds": max(gaps, default=float("nan")),
        "request_median_seconds": statistics.median(r["end"] - r["sent"] for r in results),
    }


def main():
    o = options()
    figures = report(run(o))
    if o.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")


if __name__ == "__main__":
    main()
