"""eval logits against float32 references that another program made, and its input."""

import array
import json
import os
import unittest

from program import MODELS, ProgramTest

TOLERANCE = 1e-3  # of logits with a standard deviation of about 2


def reference(folder, file):
    """{"short_logits": [rows][vocabulary], "long_logits": ...}"""
    with open(os.path.join(MODELS, folder, "expected.json"), encoding="utf-8") as source:
        expected = json.load(source)
    with open(os.path.join(MODELS, folder, file), "rb") as source:
        data = source.read()
    rows = {}
    for a in expected["arrays"]:
        floats = array.array("f", data[a["offset"]:a["offset"] + 4 * a["shape"][0] * a["shape"][1]])
        width = a["shape"][1]
        rows[a["name"]] = [floats[i:i + width] for i in range(0, len(floats), width)]
    return expected, rows


class Exact(ProgramTest):
    def logits(self, model, tokens, *more):
        out = self.path("logits.f32")
        result = self.kvikk("eval", "logits", "-m", model, "--tokens",
                            self.path("tokens.json", tokens), "--out", out, *more)
        self.assertEqual(result.code, 0, result.error)
        with open(out, "rb") as file:
            return file.read(), result

    def assert_close(self, data, want):
        floats = array.array("f", data)
        flat = [x for row in want for x in row]
        self.assertEqual(len(floats), len(flat))
        self.assertLess(max(abs(a - b) for a, b in zip(floats, flat)), TOLERANCE)

    def test_references(self):
        for folder, model, file in (("llama", "model-q4_0.gguf", "expected-q4_0.f32"),
                                    ("qwen2", "model.gguf", "expected.f32"),
                                    ("gemma3_text", "model.gguf", "expected.f32")):
            expected, rows = reference(folder, file)
            path = os.path.join(MODELS, folder, model)
            data, _ = self.logits(path, expected["short_prompt"], "--exact")
            self.assert_close(data, rows["short_logits"])
            positions = self.path("positions.json", expected["long_positions"])
            data, _ = self.logits(path, expected["long_prompt"], "--positions", positions,
                                  "--exact")
            self.assert_close(data, rows["long_logits"])
            if file != "expected.f32":
                continue
            greedy = expected["greedy_tokens"]
            _, result = self.logits(path, expected["short_prompt"], "--exact", "--greedy",
                                    len(greedy))
            self.assertEqual(result.json, {"greedy": greedy})

    def test_bytes_do_not_depend_on_threads_or_chunks(self):
        expected, _ = reference("gemma3_text", "expected.f32")
        model = os.path.join(MODELS, "gemma3_text", "model.gguf")
        want, _ = self.logits(model, expected["long_prompt"])
        for more in (["--threads", 1], ["--threads", 3, "--chunk", 7], ["--chunk", 64]):
            got, _ = self.logits(model, expected["long_prompt"], *more)
            self.assertEqual(got, want, more)

    def test_positions_in_any_order(self):
        tokens = [3, 1, 4, 1, 5, 9, 2, 6]
        every, _ = self.logits(self.tiny, tokens)
        row = len(every) // len(tokens)
        positions = [5, 0, 5, 7]
        some, result = self.logits(self.tiny, tokens, "--positions",
                                   self.path("positions.json", positions), "--json")
        self.assertEqual(some, b"".join(every[p * row:(p + 1) * row] for p in positions))
        self.assertEqual(result.json, {"positions": 4, "vocabulary": row // 4})
        none, _ = self.logits(self.tiny, tokens, "--positions", self.path("none.json", []))
        self.assertEqual(none, b"")

    def test_wrong_input(self):
        cases = (("[]", "no tokens"), ("[1, 2,", "is not JSON"), ("{}", "list of whole numbers"),
                 ("[1.5]", "entry 0"), ("[1, -1]", "entry 1"),
                 ("[99999999999999999999]", "entry 0"), ('["1"]', "entry 0"),
                 ("[1000000000]", "1000000000"), ("", "is not JSON"),
                 ("[" * 100000, "brackets"), ("[null]", "entry 0"))
        for text, word in cases:
            result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens",
                                self.path("wrong.json", text), "--out", "/dev/null")
            self.assertIn(result.code, (1, 2), text[:20])
            self.assertIn("kvikk: error: ", result.error)
            self.assertIn(word, result.error)
        tokens = self.path("tokens.json", [1, 2])
        result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", tokens, "--positions",
                            self.path("positions.json", [2]), "--out", "/dev/null")
        self.assert_failed(result, 2, "position 2 is outside the 2 tokens")
        result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", self.path("absent"),
                            "--out", "/dev/null")
        self.assert_failed(result, 1, "absent")
        result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", tokens, "--context", 1,
                            "--out", "/dev/null")
        self.assert_failed(result, 1, "context")

    def test_a_context_that_the_pieces_do_not_fit_in(self):
        text = self.path("text.txt", "The quick brown fox jumps over the lazy dog. " * 40)
        for verb in ("ppl", "kl"):
            result = self.kvikk("eval", verb, "-m", self.tiny, "--text", text, "--ctx", 300,
                                "--context", 299)
            self.assert_failed(result, 2, "--context is 299", "--ctx 300")
        result = self.kvikk("eval", "kl", "-m", self.tiny, "--text", text, "--ctx", 300,
                            "--against", "context=64")
        self.assert_failed(result, 2, "--against is 64", "--ctx 300")

    def test_distance_of_a_model_to_itself_is_nothing(self):
        text = self.path("text.txt", "The quick brown fox jumps over the lazy dog. " * 40)
        arguments = ["eval", "kl", "-m", self.tiny, "--text", text, "--ctx", 128, "--chunks", 3]
        kl = self.kvikk(*arguments, "--against", "chunk=64,threads=1", "--json").json
        self.assertEqual((kl["mean_kl"], kl["max_kl"], kl["same_top1_percent"]), (0, 0, 100))
        self.assertEqual((kl["tokens"], kl["ln_ppl_ratio"]), (3 * 127, 0))
        kl = self.kvikk(*arguments, "--json").json  # against exact
        self.assertGreater(kl["mean_kl"], 0)
        self.assertLess(kl["mean_kl"], 0.1)
        self.assertEqual((kl["null_mean_kl"], kl["null_same_top1_percent"]), (0, 100))
        ppl = self.kvikk("eval", "ppl", *arguments[2:], "--exact", "--json").json
        self.assertAlmostEqual(ppl["ppl"], kl["ppl_base"], 6)
        self.assertIn("mean KL", self.kvikk(*arguments).text)
        self.assert_failed(self.kvikk(*arguments, "--against", "speed=9"), 2, "'speed'")
        self.assert_failed(self.kvikk(*arguments[:-4], "--ctx", "100000"), 2, "1800 tokens")


if __name__ == "__main__":
    unittest.main()
