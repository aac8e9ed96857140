"""The two-stage output head says what the whole head says, on the models that people use.

Log-probabilities need every logit, so a request with them takes the whole head: the same request
without must give the same tokens, greedy and drawn.
"""

import unittest

from catalog import batch, find_model

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
        said, _ = batch(model, rows, "--concurrency", 6)
        return [row["tokens"] for row in said]

    def test_same_tokens(self):
        for name in ("smollm2-135m", "gemma-3-270m", "qwen2.5-coder-0.5b"):
            with self.subTest(model=name):
                model = find_model(name)  # Gemma's terms are not accepted by everyone
                self.assertEqual(self.answers(model, False), self.answers(model, True))


if __name__ == "__main__":
    unittest.main()
