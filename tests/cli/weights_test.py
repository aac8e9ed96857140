"""--weights: quantizing while a model is loaded, and the cache of what came out."""

import array
import math
import os
import unittest

from exact_test import reference
from program import MODELS, ProgramTest


def distance(data, want):
    """The mean KL divergence of rows of logits, given as bytes and as lists."""
    floats = array.array("f", data)
    total = 0
    for i, row in enumerate(want):
        own = floats[i * len(row):(i + 1) * len(row)]

        def normalise(logits):
            top = max(logits)
            mass = math.log(sum(math.exp(x - top) for x in logits))
            return [x - top - mass for x in logits]
        p, q = normalise(row), normalise(own)
        total += sum(math.exp(a) * (a - b) for a, b in zip(p, q))
    return total / len(want)


class Weights(ProgramTest):
    def logits(self, *more):
        expected, self.rows = reference("qwen2", "expected.f32")
        out = self.path("logits.f32")
        result = self.kvikk("eval", "logits", "-m", os.path.join(MODELS, "qwen2", "model.gguf"),
                            "--tokens", self.path("tokens.json", expected["short_prompt"]),
                            "--models-dir", self.path("models"), "--out", out, *more)
        self.assertEqual(result.code, 0, result.error)
        with open(out, "rb") as file:
            return file.read()

    def caches(self):
        folder = os.path.join(self.path("models"), "cache")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def test_quantized_weights_are_close_and_kept(self):
        self.logits()
        self.assertEqual(self.caches(), [])
        # Random weights have nothing to spare: 4 bits cost them far more than a trained model.
        for method, most in (("q8_0", 0.01), ("q4_0", 0.5)):
            before = self.caches()
            first = self.logits("--weights", method)
            self.assertLess(distance(first, self.rows["short_logits"]), most, method)
            new = sorted(set(self.caches()) - set(before))
            self.assertEqual(len(new), 1, method)
            self.assertEqual(self.logits("--weights", method), first)
            self.assertEqual(len(self.caches()), len(before) + 1)
            # Damage is noticed, and the file made anew.
            path = os.path.join(self.path("models"), "cache", new[0])
            with open(path, "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last[0] ^ 255]))
            self.assertEqual(self.logits("--weights", method), first)
            with open(path, "rb") as file:
                file.seek(-1, os.SEEK_END)
                self.assertEqual(file.read(1), last)

    def test_rows_that_q4_k_cannot_hold_get_8_bits(self):
        self.assertEqual(self.logits("--weights", "q4_k"), self.logits("--weights", "q8_0"))

    def test_wrong_use(self):
        arguments = ["eval", "logits", "-m", self.tiny, "--tokens", "t.json", "--out", "l.f32"]
        self.assert_failed(self.kvikk(*arguments, "--weights", "q3_k"), 2, "q8_0, q4_0, q4_k")
        self.assert_failed(self.kvikk(*arguments, "--weights", "q8_0", "--exact"), 2, "exact")


if __name__ == "__main__":
    unittest.main()
