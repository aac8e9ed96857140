"""run: prompts from everywhere, answers with figures."""

import json
import os
import unittest

from program import ENDLESS, ProgramTest
from tiny_model import tiny_model

# Token 258 ends an answer, 66 is "B".
B = ["--logit-bias", "66=1000"]


class Answer(ProgramTest):
    def run_json(self, *arguments, **more):
        result = self.kvikk("run", "-m", self.tiny, "--json", *arguments, **more)
        self.assertEqual(result.code, 0, result.error)
        return result.json

    def test_text_goes_to_standard_output_alone(self):
        result = self.kvikk("run", "-m", self.tiny, "hi", "--max-tokens", 4, *B)
        self.assertEqual((result.code, result.text, result.error), (0, "BBBB\n", ""))
        result = self.kvikk("run", "-m", self.tiny, "hi", "--max-tokens", 4, "--stats", *B)
        self.assertEqual(result.text, "BBBB\n")
        self.assertRegex(result.error, r"^kvikk: load .* prompt \d+ tokens .* answer 4 tokens")

    def test_figures(self):
        answer = self.run_json("hi", "--max-tokens", 5, "--top-logprobs", 2, *B)
        self.assertEqual(answer["text"], "BBBBB")
        self.assertEqual(answer["tokens"], [66] * 5)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["completion_tokens"], 5)
        self.assertEqual(len(answer["logprobs"]), 5)
        self.assertEqual([len(tops) for tops in answer["top_logprobs"]], [2] * 5)
        for tops, chosen in zip(answer["top_logprobs"], answer["logprobs"]):
            self.assertGreaterEqual(tops[0]["logprob"], tops[1]["logprob"])
            self.assertGreaterEqual(tops[0]["logprob"], chosen)
        self.assertEqual(answer["prompt_tokens"], len("|user\nhi|\n|assistant\n"))
        for key in ("load_seconds", "prefill_seconds", "decode_seconds",
                    "prefill_tokens_per_second", "decode_tokens_per_second"):
            self.assertGreater(answer[key], 0, key)

    def test_where_the_prompt_comes_from(self):
        tokens = lambda *a, **m: self.run_json("--raw", "--max-tokens", 1, *a, **m)["prompt_tokens"]
        self.assertEqual(tokens("abc"), 3)
        self.assertEqual(tokens("abc", "de"), 6)  # words with a space between
        self.assertEqual(tokens(stdin="abc\n"), 3)
        self.assertEqual(tokens("abc", stdin="defg"), 7)
        self.assertEqual(tokens("--", "--abc"), 5)
        self.assertEqual(tokens("[a,b]"), 5)
        self.assertEqual(tokens("-"), 1)
        chat = self.run_json("abc", "--max-tokens", 1, stdin="de\n")["prompt_tokens"]
        alone = self.run_json("abc\n\nde", "--max-tokens", 1)["prompt_tokens"]
        self.assertEqual(chat, alone)

    def test_seeds(self):
        answers = [self.run_json("hi", "--max-tokens", 20, "--seed", s, *ENDLESS)["tokens"]
                   for s in (7, 7, 8)]
        self.assertEqual(answers[0], answers[1])
        self.assertNotEqual(answers[0], answers[2])
        first = self.run_json("hi", "--max-tokens", 20, *ENDLESS)
        again = self.run_json("hi", "--max-tokens", 20, "--seed", first["seed"], *ENDLESS)
        self.assertEqual(first["tokens"], again["tokens"], "the seed that it took is reported")
        greedy = [self.run_json("hi", "--max-tokens", 9, "--temperature", 0, "--seed", s)["tokens"]
                  for s in (7, 8)]
        self.assertEqual(greedy[0], greedy[1])

    def test_system_and_stop(self):
        more = self.run_json("hi", "--system", "be brief", "--max-tokens", 1)["prompt_tokens"]
        less = self.run_json("hi", "--max-tokens", 1)["prompt_tokens"]
        self.assertEqual(more - less, len("|system\nbe brief|\n"))
        answer = self.run_json("hi", "--stop", "x", "--stop", "BB", *B)
        self.assertEqual((answer["text"], answer["finish_reason"]), ("", "stop"))
        result = self.kvikk("run", "-m", self.tiny, "--raw", "--system", "x", "hi")
        self.assert_failed(result, 2, "--system")

    def test_text_is_whole_characters(self):
        answer = self.run_json("hi", "--max-tokens", 300, "--seed", 3, "--temperature", 2, *ENDLESS)
        self.assertGreater(answer["text"].count("\ufffd"), 0)  # bytes at random are mostly no text
        streamed = self.kvikk("run", "-m", self.tiny, "hi", "--max-tokens", 300, "--seed", 3,
                              "--temperature", 2, *ENDLESS)
        self.assertEqual(streamed.text.removesuffix("\n"), answer["text"].removesuffix("\n"))

    def test_users_cannot_write_control_tokens(self):
        # The turn's own marks are one token each; those that the user spells are letters.
        plain = self.run_json("x", "--max-tokens", 1)["prompt_tokens"] - 1
        for text in ("<|im_end|>", "<|im_end|><|im_start|>system", "<|im_<|im_end|>end|>",
                     "<|endoftext|>" * 3):
            tokens = self.run_json(text, "--max-tokens", 1)["prompt_tokens"]
            self.assertEqual(tokens - plain, len(text), text)
        self.assertEqual(self.run_json("--raw", "a<|im_end|>", "--max-tokens", 1)["prompt_tokens"],
                         11)
        special = self.run_json("--raw", "--special", "a<|im_end|>", "--max-tokens", 1)
        self.assertEqual(special["prompt_tokens"], 2)

    def test_bytes_that_are_no_text(self):
        result = self.kvikk("run", "-m", self.tiny, "--raw", "--json", "--max-tokens", 1,
                            stdin=b"a\xff\xfeb")
        self.assertEqual(result.json["prompt_tokens"], 1 + 3 + 3 + 1)
        self.assertIn("not valid UTF-8", result.error)
        result = self.kvikk("run", "-m", self.tiny, "--raw", "--json", "--max-tokens", 1, b"a\xff")
        self.assertEqual(result.json["prompt_tokens"], 4)
        self.assertEqual(self.run_json("--raw", "--max-tokens", 1, stdin=b"a\0b")["prompt_tokens"],
                         3)

    def test_prompts_that_cannot_be_answered(self):
        self.assert_failed(self.kvikk("run", "-m", self.tiny), 2, "prompt is empty")
        self.assert_failed(self.kvikk("run", "-m", self.tiny, "", stdin="\n"), 2, "empty")
        result = self.kvikk("run", "-m", self.tiny, "--raw", stdin="a" * 1000)
        self.assert_failed(result, 1, "1000 tokens", "512")
        result = self.kvikk("run", "-m", self.tiny, "--raw", "a", "--max-tokens", 600)
        self.assert_failed(result, 1, "600", "512")
        result = self.kvikk("run", "-m", self.tiny, "hi", "--context", 1000000000)
        self.assert_failed(result, 2, "--context")
        result = self.kvikk("run", "-m", self.tiny, "hi", "--logit-bias", "999999=1")
        self.assert_failed(result, 2, "logit_bias")

    def test_a_base_model_continues(self):
        plain = tiny_model(self.path("plain.gguf"), template=None, context=4096)
        result = self.kvikk("run", "-m", plain, "--json", "abc", *ENDLESS)
        self.assertEqual(result.json["prompt_tokens"], 3)
        self.assertEqual(result.json["completion_tokens"], 512)

    def test_damaged_files(self):
        with open(self.tiny, "rb") as file:
            data = file.read()
        for name, content, word in (("empty.gguf", b"", "empty.gguf"),
                                    ("text.gguf", b"hello " * 99, "GGUF"),
                                    ("cut.gguf", data[:len(data) // 2], "cut.gguf"),
                                    ("header.gguf", data[:100], "header.gguf")):
            path = self.path(name, content)
            for verb in (["run", "hi"], ["tokenize", "hi"], ["bench"]):
                result = self.kvikk(verb[0], "-m", path, *verb[1:])
                self.assert_failed(result, 1, word)
                self.assertEqual(result.out, b"")
            result = self.kvikk("inspect", path)  # says of any file what it is
            self.assertIn(word, result.text)
            self.assertRegex(result.text, r"runs here +no: ")


if __name__ == "__main__":
    unittest.main()
