#!/usr/bin/env python3
"""Vector search beside its peers, one thread, interleaved: recall, bytes, queries a second.

usage: vectors.py --kvikk build/kvikk --base BASE.npy --queries Q.npy [--truth IDS.npy]
                  [--repeat 5] [--json F] [--plot F.svg] [--only NAME,...]
                  [--curve | --paper]
       vectors.py --synthetic 100000x1536 ...   the made-up set of docs/search.md instead of files

--curve: indexes that do not scan everything, with several settings each (lists that are looked
into, width of a graph's search), beside each other at equal recall and at equal memory.
--paper: the protocol of the TurboQuant paper: how often the nearest is among the first k at 2 and 4
bits, and the time to quantize everything, training included, beside PQ and RaBitQ.

Peers are used where they can be imported: faiss-cpu, turbovec, usearch, hnswlib, rabitqlib. Every
round runs each system once, in turn, so that what else the machine does meets all alike; a figure
is the best of the rounds. Each system searches with all queries at once (batch) and one by one
(single). Times are processor time: on one thread that is what a quiet machine takes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = "1"  # before anything reads them

import numpy as np  # noqa: E402

K = 10  # neighbours
PAPER_PLACES = (1, 2, 4, 8, 16, 32, 64)
CURVE_PROBES = (4, 8, 16, 32, 48, 64, 128)  # of 256 lists
CURVE_RECALL = 0.95
CURVE_WIDTHS = (16, 32, 64, 128, 256)  # of a graph's search


def synthetic(shape):
    """Clusters with isotropic noise: for speed, its recall says little."""
    n, d = map(int, shape.split("x"))
    rng = np.random.default_rng(1536)
    centres = rng.standard_normal((256, d), dtype=np.float32)

    def draw(m):
        x = centres[rng.integers(0, 256, m)] + rng.standard_normal((m, d), dtype=np.float32)
        return x / np.linalg.norm(x, axis=1, keepdims=True)
    return draw(n), draw(200)


def exact(base, queries):
    best = []
    for q in range(0, len(queries), 50):
        scores = queries[q:q + 50] @ base.T
        top = np.argpartition(-scores, K, axis=1)[:, :K]
        best.append(np.take_along_axis(top, np.argsort(-np.take_along_axis(scores, top, 1), 1), 1))
    return np.concatenate(best)


class Kvikk:
    """Runs `kvikk search bench`, which measures inside the process."""

    def __init__(self, program, folder, name, build, query=(), curve=None):
        self.name, self.program, self.query, self.curve = name, program, list(query), curve
        self.index = os.path.join(folder, (curve or name).replace(" ", "-") + ".kvx")
        self.folder = folder
        self.build_options = list(build)

    def run(self, verb, *options, threads=True):
        command = [self.program, "search", verb, *options, "--json"]
        command += ["--threads", "1"] if threads else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout)

    def build(self, base):
        if os.path.exists(self.index):  # by another setting of the same index
            made = self.run("info", "--index", self.index, threads=False)
            self.bytes = made["code_bytes_per_vector"] + made["kept_bytes_per_vector"]
            return 0.0
        made = self.run("build", "--vectors", os.path.join(self.folder, "base.npy"), "--out",
                        self.index, *self.build_options)
        self.bytes = made["code_bytes_per_vector"] + made["kept_bytes_per_vector"]
        return made["build_processor_seconds"]

    def find(self, queries):
        out = os.path.join(self.folder, "ids.npy")
        self.run("query", "--index", self.index, "--queries",
                 os.path.join(self.folder, "queries.npy"), "--k", str(K), "--out", out, *self.query)
        return np.load(out)

    def measure(self, queries):
        got = self.run("bench", "--index", self.index, "--queries",
                       os.path.join(self.folder, "queries.npy"), "--k", str(K), "--repeat", "1",
                       *self.query)
        return got["batch_processor_seconds"], got["single_processor_milliseconds"] / 1e3


class Peer:
    """A library with add(base) and search(queries) -> ids."""

    def __init__(self, name, make, bytes_per_vector, curve=None):
        self.name, self.make, self.bytes, self.curve = name, make, bytes_per_vector, curve

    def build(self, base):
        start = time.process_time()
        self.search = self.make(base)
        return time.process_time() - start

    def find(self, queries):
        return self.search(queries)

    def measure(self, queries):
        start = time.process_time()
        self.search(queries)
        together = time.process_time() - start
        start = time.process_time()
        for q in range(len(queries)):
            self.search(queries[q:q + 1])
        return together, (time.process_time() - start) / len(queries)


def missing(name):
    print(f"{name} is not installed and left out", file=sys.stderr)


def faiss_peers(d, curve=False):
    try:
        import faiss
    except ImportError:
        return missing("faiss-cpu")
    faiss.omp_set_num_threads(1)

    built = {}

    def factory(text, **parameters):
        def make(base):
            if text not in built:
                built[text] = faiss.index_factory(d, text, faiss.METRIC_INNER_PRODUCT)
                built[text].train(base[:: max(1, len(base) // 20000)].copy())
                built[text].add(base)
            index = built[text]

            def search(queries):
                for key, value in parameters.items():
                    faiss.ParameterSpace().set_index_parameter(index, key, value)
                return index.search(queries, K)[1]
            return search
        return make
    if curve:
        # The same memory as kvikk's 2 bits and halves; that of its 4 bits; a graph of bytes.
        for text, curve_name, size in (
                (f"IVF256,PQ{d // 2}x4fs,Refine(SQfp16)", "faiss IVF PQfs 2 bit + f16",
                 d // 4 + 2 * d),
                (f"IVF256,PQ{d}x4fs", "faiss IVF PQfs 4 bit", d // 2),
                ("HNSW16_SQ8", "faiss HNSW16 SQ8", d + 4 * 32)):
            key = "efSearch" if "HNSW" in text else "nprobe"
            for value in CURVE_WIDTHS if "HNSW" in text else CURVE_PROBES:
                more = {"k_factor_rf": 4} if "Refine" in text else {}
                yield Peer(f"{curve_name}, {value}", factory(text, **{key: value}, **more), size,
                           curve_name)
        return
    yield Peer("faiss PQ fast scan 2 bit", factory(f"PQ{d // 2}x4fs"), d // 4)
    yield Peer("faiss PQ fast scan 4 bit", factory(f"PQ{d}x4fs"), d // 2)
    yield Peer("faiss HNSW32", factory("HNSW32", efSearch=64), 4 * d + 4 * 64)
    for probes in (4, 16, 64):
        yield Peer(f"faiss IVF256 PQfs 2 bit + refine, nprobe {probes}",
                   factory(f"IVF256,PQ{d // 2}x4fs,RFlat", nprobe=probes, k_factor_rf=10),
                   d // 4 + 4 * d)


def turbovec_peers(d):
    try:
        import turbovec
    except ImportError:
        return missing("turbovec")

    def maker(bits):
        def make(base):
            index = turbovec.TurboQuantIndex(dim=d, bit_width=bits)
            index.add(base)
            index.prepare()
            return lambda queries: np.asarray(index.search(queries, K)[1])
        return make
    for bits in (2, 4):
        yield Peer(f"turbovec {bits} bit", maker(bits), d * bits // 8 + 8)


def graph_peers(d, curve=False):
    built = {}
    try:
        import hnswlib

        def make_hnswlib(base, width):
            if not built:
                built[0] = hnswlib.Index(space="ip", dim=d)
                built[0].init_index(max_elements=len(base), ef_construction=100, M=16)
                built[0].set_num_threads(1)
                built[0].add_items(base)
            index = built[0]

            def search(queries):
                index.set_ef(width)
                return index.knn_query(queries, K)[0]
            return search
        for width in CURVE_WIDTHS if curve else (64,):
            yield Peer(f"hnswlib M 16 ef {width}", lambda base, w=width: make_hnswlib(base, w),
                       4 * d + 16 * 8 + 8, "hnswlib M 16" if curve else None)
    except ImportError:
        missing("hnswlib")
    if curve:
        return
    try:
        from usearch.index import Index

        def make_usearch(base):
            index = Index(ndim=d, metric="ip", dtype="i8")
            index.add(np.arange(len(base)), base, threads=1)
            return lambda queries: np.atleast_2d(index.search(queries, K, threads=1).keys)
        yield Peer("usearch i8", make_usearch, d + 16 * 8 + 8)
    except ImportError:
        missing("usearch")


def rabitqlib_peers(d):
    try:
        import rabitqlib
    except ImportError:
        return missing("rabitqlib")

    def maker(bits):
        def make(base):
            index = rabitqlib.IvfIndex(d, len(base), 1, bits, "ip")
            index.build(base, base.mean(0, keepdims=True), np.zeros(len(base), np.uint32))
            return lambda queries: index.search(queries, K, 1)[0]
        return make
    for bits in (2, 4):
        yield Peer(f"rabitqlib {bits} bit", maker(bits), d * bits // 8 + 24)


def faiss_codes(d):
    try:
        import faiss
    except ImportError:
        return missing("faiss-cpu")
    faiss.omp_set_num_threads(1)

    def maker(text):
        def make(base):
            index = faiss.index_factory(d, text, faiss.METRIC_INNER_PRODUCT)
            index.train(base)
            index.add(base)
            return lambda queries: index.search(queries, K)[1]
        return make
    for bits in (2, 4):
        yield Peer(f"faiss PQ {bits} bit", maker(f"PQ{d * bits // 8}"), d * bits // 8)
        index = faiss.index_factory(d, f"RaBitQ{bits}", faiss.METRIC_INNER_PRODUCT)
        yield Peer(f"faiss RaBitQ {bits} bit", maker(f"RaBitQ{bits}"), index.code_size)


def coders(options, folder, d):
    for bits in (2, 4):
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit", ["--bits", str(bits)])
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit fitted",
                    ["--bits", str(bits), "--fit"])
    yield from turbovec_peers(d)
    yield from faiss_codes(d)
    yield from rabitqlib_peers(d)


def paper(options, base, queries, truth, folder):
    """Without rounds: one search each, whose order does not depend on the machine."""
    names = ["codec", "bytes", *(f"1@{k}" for k in PAPER_PLACES), "seconds to quantize"]
    print("| " + " | ".join(names) + " |")
    print("|---" * (len(PAPER_PLACES) + 3) + "|")
    rows = []
    for system in coders(options, folder, base.shape[1]):
        if options.only and not system.name.startswith(tuple(options.only.split(","))):
            continue
        seconds = system.build(base)
        found = np.asarray(system.find(queries))
        recall = [float((found[:, :k] == truth[:, :1]).any(1).mean()) for k in PAPER_PLACES]
        rows.append({"name": system.name, "bytes": system.bytes, "build_seconds": seconds,
                     "recall_1_at": dict(zip(PAPER_PLACES, recall))})
        print(f"| {system.name} | {system.bytes:g} | " + " | ".join(f"{r:.3f}" for r in recall) +
              f" | {seconds:.2f} |", flush=True)
    return rows


def curves(options, folder, d):
    for bits, name, build, query in (
            (2, "kvikk lists, 2 bit fitted + f16", ["--keep", "f16"], ["--rerank", "40"]),
            (4, "kvikk lists, 4 bit fitted", [], [])):
        for probes in CURVE_PROBES:
            yield Kvikk(options.kvikk, folder, f"{name}, {probes}",
                        ["--bits", str(bits), "--fit", "--lists", "256", *build],
                        ["--probes", str(probes), *query], name)
    yield from faiss_peers(d, True)
    yield from graph_peers(d, True)


def systems(options, folder, d):
    if options.curve:
        yield from curves(options, folder, d)
        return
    for bits in (2, 4):
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit", ["--bits", str(bits)])
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit fitted",
                    ["--bits", str(bits), "--fit"])
    yield Kvikk(options.kvikk, folder, "kvikk 4 bit staged", ["--bits", "4"], ["--staged"])
    yield Kvikk(options.kvikk, folder, "kvikk 2 bit fitted, 40 ranked again in f16",
                ["--bits", "2", "--fit", "--keep", "f16"], ["--rerank", "40"])
    yield from turbovec_peers(d)
    yield from rabitqlib_peers(d)
    yield from faiss_peers(d)
    yield from graph_peers(d)


def colour_of(name):
    return "#c22" if name.startswith("kvikk") else "#369"


def plot(rows, path):
    """Recall over queries a second (batch), a point a system, a line through one's settings."""
    left, top, width, height = 60, 20, 560, 360
    low = min(r["recall"] for r in rows) - 0.02
    rates = [np.log10(r["batch_qps"]) for r in rows]
    begin, end = np.floor(min(rates)), np.ceil(max(rates))
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 320}" '
             f'height="{top + height + 50}" font-family="sans-serif" font-size="11">',
             f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" '
             'stroke="#888"/>']
    for power in range(int(begin), int(end) + 1):
        x = left + width * (power - begin) / (end - begin)
        parts.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">'
                     f'{10 ** power:,}</text>')
    for tick in np.linspace(low, 1, 6):
        y = top + height * (1 - (tick - low) / (1 - low))
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{tick:.2f}</text>')
    def place(row):
        return (left + width * (np.log10(row["batch_qps"]) - begin) / (end - begin),
                top + height * (1 - (row["recall"] - low) / (1 - low)))

    for name in dict.fromkeys(row["curve"] for row in rows if row["curve"]):
        points = " ".join("{:.1f},{:.1f}".format(*place(r)) for r in rows if r["curve"] == name)
        parts.append(f'<polyline points="{points}" fill="none" '
                     f'stroke="{colour_of(name)}"/>')
    names = list(dict.fromkeys(row["curve"] or row["name"] for row in rows))
    for i, name in enumerate(names):
        parts.append(f'<text x="{left + width + 12}" y="{top + 14 * (i + 1)}" '
                     f'fill="{colour_of(name)}">{i + 1} {name}</text>')
    for row in rows:
        i = names.index(row["curve"] or row["name"])
        x, y = place(row)
        colour = colour_of(row["name"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
                     f'<text x="{x + 6:.1f}" y="{y + 4:.1f}">{i + 1}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">'
                 'queries a second of processor time, batch</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")


def rate_at(recall, rows):
    """Between the two settings whose recalls lie on both sides."""
    for a, b in zip(rows, rows[1:]):
        if a["recall"] < recall <= b["recall"]:
            part = (recall - a["recall"]) / (b["recall"] - a["recall"])
            return f"{a['batch_qps'] + part * (b['batch_qps'] - a['batch_qps']):,.0f}"
    return "no"


def compare(options, base, queries, truth, folder):
    """All systems in turn, round by round."""
    rows = []
    running = []
    for system in systems(options, folder, base.shape[1]):
        if options.only and not system.name.startswith(tuple(options.only.split(","))):
            continue
        try:
            seconds = system.build(base)
            found = system.find(queries)
        except Exception as error:  # a peer that cannot do this shape
            print(f"{system.name}: {error}", file=sys.stderr)
            continue
        hits = [len(set(a) & set(b)) for a, b in zip(np.asarray(found).tolist(),
                                                     truth.tolist())]
        rows.append({"name": system.name, "bytes": system.bytes, "build_seconds": seconds,
                     "recall": float(np.mean(hits)) / K, "curve": system.curve,
                     "batch": [], "single": []})
        running.append(system)
    for _ in range(options.repeat):
        for system, row in zip(running, rows):
            together, alone = system.measure(queries)
            row["batch"].append(together)
            row["single"].append(alone)
    print("| system | bytes | recall 10@10 | build s | batch queries/s | single ms |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        row["batch_qps"] = len(queries) / min(row["batch"])
        row["single_ms"] = min(row["single"]) * 1e3
        print(f"| {row['name']} | {row['bytes']:g} | {row['recall']:.3f} | "
              f"{row['build_seconds']:.2f} | {row['batch_qps']:,.0f} | {row['single_ms']:.3f} |")
    for name in dict.fromkeys(row["curve"] for row in rows if row["curve"]):
        rate = rate_at(CURVE_RECALL, [row for row in rows if row["curve"] == name])
        print(f"{name}: {rate} queries/s at recall {CURVE_RECALL}")
    return rows


def main():
    global K
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvikk", required=True)
    parser.add_argument("--base")
    parser.add_argument("--queries")
    parser.add_argument("--truth")
    parser.add_argument("--synthetic")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--only", default="", help="begins of names, with commas between")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    options = parser.parse_args()
    if options.synthetic:
        base, queries = synthetic(options.synthetic)
    elif options.base and options.queries:
        base = np.load(options.base).astype(np.float32)
        queries = np.load(options.queries).astype(np.float32)
    else:
        parser.error("give --base and --queries, or --synthetic")
    truth = np.load(options.truth)[:, :K] if options.truth else exact(base, queries)
    with tempfile.TemporaryDirectory(prefix="kvikk-vectors-") as folder:
        np.save(os.path.join(folder, "base.npy"), base)
        np.save(os.path.join(folder, "queries.npy"), queries)
        if options.paper:
            K = PAPER_PLACES[-1]
            rows = paper(options, base, queries, truth, folder)
        else:
            rows = compare(options, base, queries, truth, folder)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    if options.plot and not options.paper:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
