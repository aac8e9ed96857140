"""MiniLM from the catalog: the vectors that transformers computes (float32) of the same files."""

import json
import os
import struct
import tempfile
import unittest

from catalog import ROOT, find_model, kvikk

NAME = "all-minilm-l6-v2"
REFERENCE = os.path.join(ROOT, "tests", "data", "references", f"{NAME}.f32")
# Of which the reference has the mean of the final states, scaled to length 1.
TEXTS = ["The quick brown fox jumps over the lazy dog.", "How is the cache of a conversation kept?",
         "Ünïcödé, naïve café: 日本語 and 123.45 €!", "long words and many of them, " * 40]
TOKENS = [12, 11, 16, 282]


class MiniLM(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = find_model(NAME)

    def embed(self, *options):
        out = kvikk("embed", "-m", self.model, "--json", *options, *TEXTS)
        return [json.loads(line) for line in out.splitlines()]

    def test_agrees_with_the_original(self):
        with open(REFERENCE, "rb") as file:
            data = file.read()
        want = struct.unpack(f"<{len(data) // 4}f", data)
        for options, limit in ((["--exact"], 2e-6), ([], 2e-3)):
            lines = self.embed(*options)
            self.assertEqual([line["tokens"] for line in lines], TOKENS)
            got = [x for line in lines for x in line["embedding"]]
            self.assertEqual(len(got), len(want))
            self.assertLess(max(abs(a - b) for a, b in zip(got, want)), limit, options)

    def test_finds_this_project(self):
        with tempfile.TemporaryDirectory(prefix="kvikk-test-") as folder:
            index = os.path.join(folder, "docs.kvx")
            page = os.path.join(ROOT, "docs", "sampling.md")
            kvikk("search", "build", "--text", page, "-o", index)
            found = kvikk("search", "query", index, "how much randomness is in an answer?",
                          "--k", 3)
            self.assertRegex(found, r"sampling\.md:\d+")
            self.assertIn("temperature", found.lower())


if __name__ == "__main__":
    unittest.main()
