#!/usr/bin/env python3
"""Vector search beside its peers, one thread, interleaved: recall, bytes, queries a second.

usage: vectors.py --kvikk build/kvikk --base BASE.npy --queries Q.npy [--truth IDS.npy]
                  [--repeat 5] [--json F] [--plot F.svg] [--only NAME,...]
       vectors.py --synthetic 100000x1536 ...   the made-up set of docs/search.md instead of files

Peers are used where they can be imported: faiss-cpu, turbovec, usearch, hnswlib. Every round runs
each system once, in turn, so that what else the machine does meets all alike; a figure is the best
of the rounds. Each system searches with all queries at once (batch) and one by one (single). Times
are processor time: on one thread that is the time that a quiet machine takes.
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

K = 10


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

    def __init__(self, program, folder, name, build, query=()):
        self.name, self.program, self.query = name, program, list(query)
        self.index = os.path.join(folder, name.replace(" ", "-") + ".kvx")
        self.folder = folder
        self.build_options = list(build)

    def run(self, verb, *options):
        command = [self.program, "search", verb, *options, "--threads", "1", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout)

    def build(self, base):
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

    def __init__(self, name, make, bytes_per_vector):
        self.name, self.make, self.bytes = name, make, bytes_per_vector

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


def faiss_peers(d):
    try:
        import faiss
    except ImportError:
        return
    faiss.omp_set_num_threads(1)

    def factory(text, **parameters):
        def make(base):
            index = faiss.index_factory(d, text, faiss.METRIC_INNER_PRODUCT)
            index.train(base[:: max(1, len(base) // 20000)].copy())
            index.add(base)
            for key, value in parameters.items():
                faiss.ParameterSpace().set_index_parameter(index, key, value)
            return lambda queries: index.search(queries, K)[1]
        return make
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
        return

    def maker(bits):
        def make(base):
            index = turbovec.TurboQuantIndex(dim=d, bit_width=bits)
            index.add(base)
            index.prepare()
            return lambda queries: np.asarray(index.search(queries, K)[1])
        return make
    for bits in (2, 4):
        yield Peer(f"turbovec {bits} bit", maker(bits), d * bits // 8 + 8)


def graph_peers(d):
    try:
        import hnswlib

        def make_hnswlib(base):
            index = hnswlib.Index(space="ip", dim=d)
            index.init_index(max_elements=len(base), ef_construction=100, M=16)
            index.set_num_threads(1)
            index.add_items(base)
            index.set_ef(64)
            return lambda queries: index.knn_query(queries, K)[0]
        yield Peer("hnswlib M 16 ef 64", make_hnswlib, 4 * d + 16 * 8 + 8)
    except ImportError:
        pass
    try:
        from usearch.index import Index

        def make_usearch(base):
            index = Index(ndim=d, metric="ip", dtype="i8")
            index.add(np.arange(len(base)), base, threads=1)
            return lambda queries: np.atleast_2d(index.search(queries, K, threads=1).keys)
        yield Peer("usearch i8", make_usearch, d + 16 * 8 + 8)
    except ImportError:
        pass


def systems(options, folder, d):
    for bits in (2, 4):
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit", ["--bits", str(bits)])
        yield Kvikk(options.kvikk, folder, f"kvikk {bits} bit fitted",
                    ["--bits", str(bits), "--fit"])
    yield Kvikk(options.kvikk, folder, "kvikk 4 bit staged", ["--bits", "4"], ["--staged"])
    yield Kvikk(options.kvikk, folder, "kvikk 2 bit fitted, 40 ranked again in f16",
                ["--bits", "2", "--fit", "--keep", "f16"], ["--rerank", "40"])
    yield from turbovec_peers(d)
    yield from faiss_peers(d)
    yield from graph_peers(d)


def plot(rows, path):
    """Recall over queries a second (batch), a point a system."""
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
    for i, row in enumerate(rows):
        x = left + width * (np.log10(row["batch_qps"]) - begin) / (end - begin)
        y = top + height * (1 - (row["recall"] - low) / (1 - low))
        colour = "#c22" if row["name"].startswith("kvikk") else "#369"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
                     f'<text x="{x + 6:.1f}" y="{y + 4:.1f}">{i + 1}</text>'
                     f'<text x="{left + width + 12}" y="{top + 14 * (i + 1)}" fill="{colour}">'
                     f'{i + 1} {row["name"]}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 36}" text-anchor="middle">'
                 'queries a second of processor time, batch</text></svg>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvikk", required=True)
    parser.add_argument("--base")
    parser.add_argument("--queries")
    parser.add_argument("--truth")
    parser.add_argument("--synthetic")
    parser.add_argument("--repeat", type=int, default=5)
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
    rows = []
    with tempfile.TemporaryDirectory(prefix="kvikk-vectors-") as folder:
        np.save(os.path.join(folder, "base.npy"), base)
        np.save(os.path.join(folder, "queries.npy"), queries)
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
                         "recall": float(np.mean(hits)) / K, "batch": [], "single": []})
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
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
