"""The whole matrix of tests/real/lossless.py: every model of a kind, every drafter."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "real"))
from catalog import find_model  # noqa: E402
from lossless import check  # noqa: E402

TIMEOUT_S = 1200


class Lossless(unittest.TestCase):
    def check(self, name, tokens, drafter):
        check(self, find_model(name), ("suffix", "ngram", f"model:{find_model(drafter)}"), tokens,
              TIMEOUT_S)

    def test_smollm2(self):
        self.check("smollm2-135m", 24, "smollm2-135m")

    def test_qwen_half(self):
        self.check("qwen2.5-coder-0.5b", 24, "qwen2.5-coder-0.5b")

    def test_qwen(self):
        self.check("qwen2.5-coder-1.5b", 24, "qwen2.5-coder-0.5b")


if __name__ == "__main__":
    unittest.main()
