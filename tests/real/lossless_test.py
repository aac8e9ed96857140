"""Guessing ahead changes no byte with the default model."""

import unittest

from catalog import find_model
from lossless import check


class Lossless(unittest.TestCase):
    def test_smollm2(self):
        check(self, find_model("smollm2-135m"), ("suffix", "ngram"), 40)


if __name__ == "__main__":
    unittest.main()
