"""The two-stage output head says what the whole head says, on the models that people use.

Log-probabilities need every logit, so a request with them takes the whole head: the same request
without must give the same tokens, greedy and drawn.
"""

import json
import os
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["KVIKK_PROGRAM"]
TOKENS = 24
PROMPTS = ("Write a Python function that reverses a list.", "The capital of France is",
           "def quicksort(values):", "Once upon a time", "Erkläre kurz, was ein Prozessor tut.",
           "2 + 2 =", "{\"name\": ", "Das Wetter ist heute")


class OutputHead(unittest.TestCase):
    def answers(self, model, logprobs):
        rows = []
        for i, prompt in enumerate(PROMPTS):
            for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": i},
                             {"temperature": 1.3, "top_k": 100, "top_p": 1, "seed": i}):
                rows.append({"prompt": prompt, "max_tokens": TOKENS, "logprobs": logprobs,
                             **sampling})
        with tempfile.TemporaryDirectory(prefix="kvikk-test-") as folder:
            requests, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(requests, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            subprocess.run([PROGRAM, "eval", "batch", "-m", model, "--requests", requests, "--out",
                            out, "--concurrency", "6"], check=True, capture_output=True)
            with open(out, encoding="utf-8") as file:
                return [json.loads(line)["tokens"] for line in file]

    def test_same_tokens(self):
        listed = subprocess.run([PROGRAM, "models", "--json"], check=True, capture_output=True)
        fetched = {m["name"] for m in json.loads(listed.stdout) if m["fetched"]}
        for model in ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b"):
            with self.subTest(model=model):
                if model not in fetched:  # a model whose terms nobody accepted
                    self.skipTest(f"{model} is not here: kvikk pull {model}")
                self.assertEqual(self.answers(model, False), self.answers(model, True))


if __name__ == "__main__":
    unittest.main()
