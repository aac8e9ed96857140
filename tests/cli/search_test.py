"""kvikk search: vectors in, neighbours out, through files."""

import array
import json
import math
import os
import random
import struct
import unittest

from program import ProgramTest

DIMENSIONS = 24


def npy(kind, rows, columns, values):
    """The bytes of a .npy; kind is '<f4', '<f2', '<i8' or '<i4'."""
    shape = f"({rows},)" if columns is None else f"({rows}, {columns})"
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    letter = {"<f4": "f", "<f2": "e", "<i8": "q", "<i4": "i"}[kind]
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            + struct.pack(f"<{len(values)}{letter}", *values))


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY"
    length = struct.unpack("<H", data[8:10])[0]
    assert (10 + length) % 64 == 0
    header = eval(data[10:10 + length])
    letter = {"<f4": "f", "<i8": "q"}[header["descr"]]
    values = array.array(letter, data[10 + length:])
    rows, columns = header["shape"]
    assert len(values) == rows * columns
    return [list(values[r * columns:(r + 1) * columns]) for r in range(rows)]


def vectors(count, seed):
    rng = random.Random(seed)
    return [[rng.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(count)]


class Search(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.base = vectors(700, 1)
        cls.queries = vectors(9, 2)

    def save(self, name, kind, rows):
        flat = [x for row in rows for x in row]
        return self.path(name, npy(kind, len(rows), len(rows[0]) if rows else DIMENSIONS, flat))

    def build(self, *more, kind="<f4", code=0):
        base = self.save("base.npy", kind, self.base)
        result = self.kvikk("search", "build", "--vectors", base, "--out", self.path("ix"), *more)
        self.assertEqual(result.code, code, result.error)
        return result

    def query(self, *more, k=10):
        queries = self.save("queries.npy", "<f4", self.queries)
        result = self.kvikk("search", "query", "--index", self.path("ix"), "--queries", queries,
                            "--k", k, "--out", self.path("ids.npy"), "--scores",
                            self.path("scores.npy"), *more)
        self.assertEqual(result.code, 0, result.error)
        return read_npy(self.path("ids.npy")), read_npy(self.path("scores.npy")), result

    def exact(self, metric, k=10):
        def score(q, x):
            dot = sum(a * b for a, b in zip(q, x))
            if metric == "ip":
                return -dot
            if metric == "cos":
                return -dot / math.sqrt(sum(a * a for a in q) * sum(b * b for b in x))
            return sum((a - b) ** 2 for a, b in zip(q, x))
        found = []
        for q in self.queries:
            scores = sorted((score(q, x), i) for i, x in enumerate(self.base))
            found.append([(i, abs(s) if metric == "l2" else -s) for s, i in scores[:k]])
        return found

    def test_exact_neighbours_for_every_metric(self):
        for metric in ("ip", "cos", "l2"):
            for kind in ("<f4", "<f2"):
                self.build("--metric", metric, "--bits", 4, "--keep", "f16", kind=kind)
                ids, scores, _ = self.query("--rerank", 300)
                hits = 0
                for row, score_row, want in zip(ids, scores, self.exact(metric)):
                    hits += len(set(row) & {i for i, _ in want})
                    self.assertAlmostEqual(score_row[0], want[0][1], delta=0.05)
                self.assertGreaterEqual(hits, 87)

    def test_figures_and_info(self):
        built = self.build("--bits", 2, "--fit", "--json").json
        self.assertEqual(built["vectors"], 700)
        self.assertTrue(built["fitted"])
        self.assertEqual(built["bytes_per_vector"], built["code_bytes_per_vector"] + 8)
        self.assertGreaterEqual(built["build_seconds"], 0)
        _, _, result = self.query("--json")
        self.assertGreater(result.json["queries_per_second"], 0)
        info = self.kvikk("search", "info", "--index", self.path("ix"), "--verify", "--json").json
        self.assertEqual((info["transform"], info["metric"], info["dimensions"]),
                         ("fitted", "ip", DIMENSIONS))
        self.assertIn("fitted", self.kvikk("search", "info", "--index", self.path("ix")).text)
        queries = self.save("queries.npy", "<f4", self.queries)
        bench = self.kvikk("search", "bench", "--index", self.path("ix"), "--queries", queries,
                           "--repeat", 1, "--json").json
        self.assertGreater(bench["batch_queries_per_second"], 0)

    def test_answers_do_not_depend_on_threads_level_or_stage(self):
        self.build("--bits", 3)
        expected = self.query("--threads", 1)[:2]
        self.assertEqual(self.query("--threads", 3)[:2], expected)
        self.assertEqual(self.query("--cpu-level", "scalar")[:2], expected)
        self.assertEqual(self.query("--staged", "--candidates", 700)[:2], expected)

    def test_lists(self):
        self.build("--bits", 8)
        expected = self.query()[0]
        self.assertEqual(self.build("--bits", 8, "--lists", 12, "--json").json["lists"], 12)
        info = self.kvikk("search", "info", "--index", self.path("ix"), "--json").json
        self.assertEqual(info["lists"], 12)
        self.assertTrue(1 <= info["probes"] <= 12)

        def found(*more):
            ids, _, result = self.query("--json", *more)
            hits = sum(len(set(a) & set(b)) for a, b in zip(ids, expected))
            return hits / (10 * len(ids)), result.json["probes"]
        self.assertGreater(found("--probes", 12)[0], 0.95)
        self.assertEqual(found("--probes", 99)[1], 12)
        self.assertEqual(found()[1], info["probes"])
        part, probes = found("--recall", 0.8)
        self.assertGreater(part, 0.7)
        self.assertTrue(1 < probes < 12)
        self.assertLess(found("--probes", 1)[0], part)
        queries = self.save("queries.npy", "<f4", self.queries)
        bench = self.kvikk("search", "bench", "--index", self.path("ix"), "--queries", queries,
                           "--repeat", 1, "--recall", 0.8, "--json").json
        self.assertEqual(bench["probes"], probes)
        query = ("search", "query", "--index", self.path("ix"), "--queries", queries)
        self.assert_failed(self.kvikk(*query, "--recall", 0.5, "--probes", 3), 2, "--probes")
        base = self.path("base.npy")
        self.assert_failed(self.kvikk("search", "build", "--vectors", base, "--out",
                                      self.path("none"), "--lists", 300), 2, "at least 1200")
        self.build()
        self.assert_failed(self.kvikk(*query, "--recall", 0.5), 2, "no lists")

    def test_lines_of_json(self):
        self.build()
        queries = self.save("queries.npy", "<f4", self.queries)
        result = self.kvikk("search", "query", "--index", self.path("ix"), "--queries", queries,
                            "--k", 3)
        ids, scores, _ = self.query(k=3)
        self.assertEqual([line["ids"] for line in result.lines], ids)
        self.assertEqual(len(result.lines[0]["scores"]), 3)

    def test_few_vectors_leave_gaps(self):
        self.build()
        only = self.path("only.npy", npy("<i8", 2, None, [5, 7]))
        ids, scores, _ = self.query("--only", only, k=4)
        for row, score_row in zip(ids, scores):
            self.assertEqual(sorted(row[:2]), [5, 7])
            self.assertEqual(row[2:], [-1, -1])
            self.assertTrue(math.isnan(score_row[3]))

    def test_add_replaces_and_removes(self):
        ids = self.path("base-ids.npy", npy("<i8", 700, None, [10 * i for i in range(700)]))
        self.build("--ids", ids, "--bits", 8)
        more = self.save("more.npy", "<f4", self.queries)
        more_ids = self.path("more-ids.npy", npy("<i4", 9, 1, list(range(100000, 100009))))
        gone = self.path("gone.npy", npy("<i8", 2, None, [0, 10]))
        result = self.kvikk("search", "add", "--index", self.path("ix"), "--vectors", more, "--ids",
                            more_ids, "--remove", gone, "--compact", "--json")
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(result.json["vectors"], 707)
        found, _, _ = self.query("--threads", 1, k=1)
        self.assertEqual([row[0] for row in found], list(range(100000, 100009)))
        self.assert_failed(self.kvikk("search", "add", "--index", self.path("ix"), "--vectors",
                                      more), 2, "need --ids")

    def test_wrong_vectors_are_named(self):
        self.base[650][3] = float("nan")
        try:
            self.assert_failed(self.build(code=2), 2, "vector 650", "NaN")
        finally:
            self.base[650][3] = 0.5
        self.build()
        wrong = self.path("wrong.npy", npy("<f4", 2, 3, [0.0] * 6))
        self.assert_failed(self.kvikk("search", "query", "--index", self.path("ix"), "--queries",
                                      wrong), 2, "3 dimensions", "24")

    def test_damaged_files_are_refused(self):
        good = npy("<f4", 2, 3, [1.0] * 6)
        cases = {
            b"": "is not a .npy", b"\x93NUMPY\x01\x00": "is not a .npy", good[:-1]: "24 bytes",
            good + b"x": "25 are there", good.replace(b"False", b"True "): "Fortran",
            good.replace(b"<f4", b"<f8"): "'<f8'", good.replace(b"<f4", b">f4"): "'>f4'",
            good.replace(b"(2, 3)", b"(2,)  "): "bytes of numbers",
            good.replace(b"(2, 3)", b"(-2,3)"): "cannot be read",
            good.replace(b"(2, 3)", b"(9, 9999999999999999999)"): "larger than any file",
            good.replace(b"\x01\x00", b"\x07\x00", 1): "version 7",
            good[:8] + b"\xff\xff" + good[10:]: "its header ends",
        }
        for data, words in cases.items():
            bad = self.path("bad.npy", data)
            result = self.kvikk("search", "build", "--vectors", bad, "--out", self.path("none"))
            self.assert_failed(result, 1, words, "bad.npy")
            self.assertFalse(os.path.exists(self.path("none")))
        self.build()
        with open(self.path("ix"), "rb") as file:
            data = bytearray(file.read())
        data[9000] ^= 1
        self.path("damaged", bytes(data))
        queries = self.save("queries.npy", "<f4", self.queries)
        self.assert_failed(self.kvikk("search", "query", "--index", self.path("damaged"),
                                      "--queries", queries), 1, "checksum")
        self.assert_failed(self.kvikk("search", "info", "--index", queries), 1, "is not an index")

    def test_fvecs(self):
        rows = b"".join(struct.pack(f"<i{DIMENSIONS}f", DIMENSIONS, *row) for row in self.base)
        self.build("--bits", 8)
        expected = self.query()[:2]
        path = self.path("base.fvecs", rows)
        result = self.kvikk("search", "build", "--vectors", path, "--out", self.path("ix"),
                            "--bits", 8)
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(self.query()[:2], expected)
        row_bytes = 4 + 4 * DIMENSIONS
        changed = rows[:row_bytes] + struct.pack("<i", 7) + rows[row_bytes + 4:]
        for data, words in ((rows[:-1], "no multiple"), (changed, "row 1 has 7 dimensions"),
                            (b"\0" * 8, "0 dimensions"), (b"", "too short")):
            result = self.kvikk("search", "build", "--vectors", self.path("bad.fvecs", data),
                                "--out", self.path("none"))
            self.assert_failed(result, 1, words, "bad.fvecs")

    def test_json_lines(self):
        ids = self.path("base-ids.npy", npy("<i8", 700, None, [10 * i for i in range(700)]))
        self.build("--bits", 8, "--ids", ids)
        expected = self.query()[:2]
        lines = [json.dumps({"id": 10 * i, "vector": row, "attributes": [i]})
                 for i, row in enumerate(self.base)]
        path = self.path("base.jsonl", "\n".join(lines) + "\n")
        result = self.kvikk("search", "build", "--vectors", path, "--out", self.path("ix"),
                            "--bits", 8)
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(self.query()[:2], expected)
        more = self.path("more.jsonl", json.dumps({"id": -5, "vector": self.queries[0],
                                                   "attributes": [1]}))
        result = self.kvikk("search", "add", "--index", self.path("ix"), "--vectors", more,
                            "--json")
        self.assertEqual(result.json["vectors"], 701)
        for line, words in (('{"id": 1}', "'vector' must be there"), ("[1]", "object"),
                            ('{"vector": [1, "x"]}', "no number"), ('{"vector": [1]}\n'
                             '{"vector": [1, 2]}', "bad.jsonl:2: 'vector' is not as"),
                            ('{"vector": [1]}\n{"vector": [2], "id": 3}', "'id' is not as"),
                            ('{"vector": [1], "id": 1.5}', "whole numbers"),
                            ('{"vector": [1], "id": 18446744073709551615}', "64 bits"),
                            ("", "no lines")):
            result = self.kvikk("search", "build", "--vectors", self.path("bad.jsonl", line),
                                "--out", self.path("none"))
            self.assert_failed(result, 1, words)
        result = self.kvikk("search", "build", "--vectors",
                            self.path("bad.jsonl", '{"vector": [1e999]}'), "--out",
                            self.path("none"))
        self.assertIn(result.code, (1, 2))
        self.assertFalse(os.path.exists(self.path("none")))

    def test_wrong_use(self):
        for words, say in ((("build",), "--vectors is missing"),
                           (("build", "--vectors", "x"), "--out is missing"),
                           (("query", "--index", "x"), "--queries is missing"),
                           (("query", "--index", "x", "--queries", "y", "--json"), "--out"),
                           (("query", "--index", "x", "--queries", "y", "--k", "0"), "--k is 0"),
                           (("info",), "--index is missing")):
            self.assert_failed(self.kvikk("search", *words), 2, say)
        base = self.save("base.npy", "<f4", self.base)
        for more, say in ((("--bits", 5), "bits are 1, 2, 3, 4 or 8"),
                          (("--metric", "dot"), "ip, cos or l2"),
                          (("--keep", "f64"), "int8 or f16"),
                          (("--cpu-level", "mmx"), "mmx")):
            self.assert_failed(self.kvikk("search", "build", "--vectors", base, "--out",
                                          self.path("none"), *more), 2, say)
        self.assert_failed(self.kvikk("search", "build", "--vectors", base, "--out", base), 2,
                           "replace")


if __name__ == "__main__":
    unittest.main()
