"""eval batch: the same answers whatever runs beside them, in order; wrong lines are named."""

import json
import os
import random
import unittest

from program import END_TOKENS_BANNED, ENDLESS, ProgramTest
from tiny_model import tiny_model


class Batch(ProgramTest):
    def batch(self, rows, *more):
        requests = self.path("requests.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        out = self.path("answers.jsonl")
        result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out", out,
                            *more)
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(result.out, b"" if "--json" not in more else result.out)
        with open(out, encoding="utf-8") as file:
            return [json.loads(line) for line in file.read().splitlines()]

    def rows(self):
        rnd = random.Random(1)
        rows = []
        for i in range(20):
            row = {"id": f"r{i}", "max_tokens": rnd.randrange(1, 30), "seed": rnd.randrange(9),
                   "temperature": rnd.choice([0, 0.8])}
            kind = i % 3
            if kind == 0:
                row["tokens"] = [rnd.randrange(256) for _ in range(rnd.randrange(1, 200))]
            elif kind == 1:
                row["prompt"] = "common beginning " * 6 + str(i)
            else:
                row["messages"] = [{"role": "user", "content": "hello " * rnd.randrange(1, 20)}]
            rows.append(row)
        return rows

    def test_answers_do_not_depend_on_neighbours(self):
        rows = self.rows()
        want = self.batch(rows, "--concurrency", 1)
        self.assertEqual([a["id"] for a in want], [r["id"] for r in rows])
        self.assertEqual(set(want[0]), {"id", "tokens", "text", "finish_reason"})
        self.assertEqual(self.batch(rows, "--concurrency", 8), want)
        self.assertEqual(self.batch(rows, "--concurrency", 5, "--threads", 1, "--chunk", 16), want)
        shuffled = random.Random(2).sample(rows, len(rows))
        got = {a["id"]: a for a in self.batch(shuffled, "--concurrency", 16)}
        self.assertEqual([got[r["id"]] for r in rows], want)

    def test_guessing_changes_no_byte(self):
        rows = self.rows()
        for row in rows:
            row["max_tokens"] += 60
            row["logit_bias"] = {"65": 9, "66": 9}  # so that there is something to guess
        want = self.batch(rows, "--concurrency", 1, "--spec", "none")
        for spec in ("none", "ngram", "suffix", "auto", f"model:{self.tiny}"):
            for more in (["--concurrency", 1], ["--concurrency", 6, "--draft", 5]):
                result = self.batch(rows, "--spec", spec, *more)
                self.assertEqual(result, want, (spec, more))
        figures = self.kvikk("eval", "batch", "-m", self.tiny, "--requests",
                             self.path("requests.jsonl"), "--out", self.path("answers.jsonl"),
                             "--spec", "suffix", "--draft", 4, "--json").json
        self.assertGreater(figures["accepted_tokens"], 100)
        self.assertLessEqual(figures["accepted_tokens"], figures["drafted_tokens"])

    def test_drafters_that_cannot_be(self):
        rows = [{"id": 1, "tokens": [1], "max_tokens": 1}]
        self.batch(rows)
        other = tiny_model(self.path("other.gguf"), special=["<a>", "<b>", "<c>"])
        for spec, word in (("eagle", "none, auto, ngram, suffix or model:MODEL"),
                           ("model:absent.gguf", "absent.gguf"),
                           (f"model:{other}", "vocabularies differ: token")):
            result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests",
                                self.path("requests.jsonl"), "--out", self.path("answers.jsonl"),
                                "--spec", spec)
            self.assertIn(result.code, (1, 2))
            self.assertIn(word, result.error)

    def test_finish_reasons_and_defaults(self):
        rows = [{"prompt": "a", "max_tokens": 3, "logit_bias": END_TOKENS_BANNED},
                {"prompt": "a", "logit_bias": {"258": 1000}},
                {"id": 7, "prompt": "a", "logit_bias": {"66": 1000}, "stop": "BBB"}]
        answers = self.batch(rows, "--max-tokens", 9)
        self.assertEqual([a["finish_reason"] for a in answers], ["length", "stop", "stop"])
        self.assertEqual([a["id"] for a in answers], [0, 1, 7])
        self.assertEqual([len(a["tokens"]) for a in answers[:2]], [3, 0])
        self.assertEqual(answers[2]["text"], "")

    def test_figures(self):
        requests = self.path("requests.jsonl", '{"prompt": "abc", "max_tokens": 2, "id": 1}\n')
        result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                            self.path("out.jsonl"), "--json", *ENDLESS)
        self.assertEqual(result.json["requests"], 1)
        self.assertEqual(result.json["prompt_tokens"], 3)
        self.assertEqual(result.json["completion_tokens"], 2)

    def test_wrong_lines_are_named_before_anything_is_computed(self):
        good = '{"prompt": "a", "max_tokens": 1}\n'
        cases = (("{", "is not JSON"), ("[]", "JSON object"), ("{}", "exactly one of"),
                 ('{"prompt": "a", "tokens": [1]}', "exactly one of"),
                 ('{"prompt": 1}', "'prompt'"), ('{"prompt": ""}', "prompt is empty"),
                 ('{"tokens": [300]}', "token 300"), ('{"tokens": "x"}', "'tokens'"),
                 ('{"prompt": "a", "max_tokens": -1}', "'max_tokens' is -1"),
                 ('{"prompt": "a", "max_tokens": 99999999999999999999}', "'max_tokens'"),
                 ('{"prompt": "a", "temperature": "hot"}', "'temperature'"),
                 ('{"prompt": "a", "temprature": 1}', "'temprature'"),
                 ('{"prompt": "a", "logit_bias": {"999": 1}}', "999"),
                 ('{"messages": "hi"}', "'messages'"), ('{"prompt": "a", "id": {}}', "'id'"),
                 ('{"prompt": "a", "max_tokens": 512}', "context"),
                 ('{"prompt": "' + "a" * 600 + '"}', "600 tokens"),
                 (json.dumps({"prompt": "a", "stop": [str(n) for n in range(17)]}), "at most 16"),
                 (b'{"prompt": "\xff"}', "is not JSON"), (b'{"prompt": "a"}\0{', "NUL byte"))
        for line, word in cases:
            line = line.encode() if isinstance(line, str) else line
            text = good.encode() + b"\n" + line + b"\n" + good.encode()
            requests = self.path("wrong.jsonl", text)
            out = self.path("none.jsonl")
            result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                                out)
            self.assert_failed(result, 1, "wrong.jsonl:3", word)
            with self.assertRaises(FileNotFoundError):
                open(out, encoding="utf-8")

    def test_requests_that_the_cache_cannot_hold_are_refused_first(self):
        wide = tiny_model(self.path("wide.gguf"), context=100000)
        requests = self.path("requests.jsonl", '{"prompt": "a", "max_tokens": 2}\n'
                                               '{"prompt": "a", "max_tokens": 90000}\n')
        result = self.kvikk("eval", "batch", "-m", wide, "--requests", requests, "--out",
                            self.path("refused.jsonl"), "--kv-memory-mib", 1)
        self.assert_failed(result, 1, "requests.jsonl:2", "max_tokens (90000)", "context")
        self.assertFalse(os.path.exists(self.path("refused.jsonl")))

    def test_dry_without_a_tokenizer_is_refused_first(self):
        requests = self.path("requests.jsonl", '{"tokens": [1], "max_tokens": 2}\n'
                                               '{"tokens": [1], "dry_multiplier": 1}\n')
        model = tiny_model(self.path("bare.gguf"), tokenizer=False)
        result = self.kvikk("eval", "batch", "-m", model, "--requests", requests, "--out",
                            self.path("refused.jsonl"))
        self.assert_failed(result, 1, "requests.jsonl:2", "dry_sequence_breakers")

    def test_what_is_read_is_not_overwritten(self):
        requests = self.path("requests.jsonl", '{"prompt": "a", "max_tokens": 1}\n')
        os.symlink(requests, self.path("link.jsonl"))
        for out in (requests, self.path("link.jsonl"), self.tiny):
            result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                                out)
            self.assert_failed(result, 2, "is also read here")

    def test_a_template_that_refuses(self):
        requests = self.path("requests.jsonl", '{"messages": [{"role": "user"}]}\n'
                                               '{"messages": 5, "max_tokens": 1}\n')
        result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                            self.path("o.jsonl"))
        self.assert_failed(result, 1, "requests.jsonl:2")


if __name__ == "__main__":
    unittest.main()
