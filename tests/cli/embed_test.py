"""kvikk embed: where texts come from, where vectors go, what is refused."""

import math
import os
import struct
import unittest

from program import MODELS, ProgramTest

BERT = os.path.join(MODELS, "bert")
TEXTS = ["a small cat", "", "one. two!"]


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + size].decode())  # noqa: S307: the program's own file
    numbers = struct.unpack(f"<{math.prod(header['shape'])}f", data[10 + size:])
    assert header["descr"] == "<f4" and not header["fortran_order"]
    columns = header["shape"][1]
    return [list(numbers[i:i + columns]) for i in range(0, len(numbers), columns)]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Embed(ProgramTest):
    def test_all_ways_in_and_out_agree(self):
        lines = os.path.join(self.folder, "lines.txt")
        with open(lines, "w", encoding="utf-8") as file:
            file.write("\r\n".join(TEXTS) + "\n")
        vectors = os.path.join(self.folder, "vectors.npy")
        words = self.kvikk("embed", "-m", BERT, "--json", *TEXTS)
        self.assertEqual(words.code, 0, words.error)
        self.assertEqual([line["index"] for line in words.lines], [0, 1, 2])
        self.assertEqual([line["tokens"] for line in words.lines], [9, 2, 10])
        want = [[single(x) for x in line["embedding"]] for line in words.lines]
        for vector in want:
            self.assertAlmostEqual(sum(x * x for x in vector), 1.0, places=5)
        plain = self.kvikk("embed", "-m", BERT, "--in", lines)
        self.assertEqual([[single(float(x)) for x in line.split(" ")]
                          for line in plain.text.splitlines()], want)
        figures = self.kvikk("embed", "-m", BERT, "--out", vectors, "--json",
                                   stdin="\n".join(TEXTS).encode())
        self.assertEqual(figures.code, 0, figures.error)
        self.assertEqual(read_npy(vectors), want)
        self.assertEqual({k: figures.json[k] for k in ("texts", "dimensions", "tokens", "pooling")},
                         {"texts": 3, "dimensions": 32, "tokens": 21, "pooling": "mean"})

    def test_decoders_too(self):
        result = self.kvikk("embed", "-m", self.tiny, "--json", "--raw", "abc")
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(len(result.json["embedding"]), 64)
        self.assertEqual(result.json["tokens"], 3)

    def test_refusals(self):
        long = self.kvikk("embed", "-m", BERT, stdin=b"a\n" + b"x" * 90 + b" " + b"y" * 90)
        self.assertEqual(long.code, 2)
        self.assertIn(":2: the text has 182 tokens; the context has 160", long.error)
        cut = self.kvikk("embed", "-m", BERT, "--truncate", "--json",
                               "x" * 90 + " " + "y" * 90)
        self.assertEqual(cut.json["tokens"], 160)
        both = self.kvikk("embed", "-m", BERT, "--in", "x", "a text")
        self.assertEqual(both.code, 2)
        pooling = self.kvikk("embed", "-m", BERT, "--pooling", "max", "a text")
        self.assertEqual(pooling.code, 2)
        self.assertIn("mean, cls, last", pooling.error)
        writes = self.kvikk("run", "-m", BERT, "a text")
        self.assertEqual(writes.code, 1)
        self.assertIn("kvikk embed", writes.error)

    def test_inspect_knows_encoders(self):
        result = self.kvikk("inspect", BERT, "--json").json
        self.assertTrue(result["runs"])
        self.assertTrue(result["encoder"])
        self.assertNotIn("kv", result)
        self.assertIn("embed", self.kvikk("inspect", BERT).text)


if __name__ == "__main__":
    unittest.main()
