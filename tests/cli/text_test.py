"""tokenize and template: one line in, one line out."""

import json
import os
import unittest

from program import ProgramTest
from tiny_model import SPECIAL, tiny_model


def lines(rows):
    return "".join(json.dumps(r) + "\n" for r in rows)


class Tokenize(ProgramTest):
    def tokenize(self, rows, *more):
        result = self.kvikk("tokenize", "-m", self.tiny, "--in", self.path("in.jsonl", lines(rows)),
                            *more)
        self.assertEqual(result.code, 0, result.error)
        return result.lines

    def test_round_trip(self):
        texts = ["", "hello", "é€😀", "a\u0000b", "line\nline\u2028\u0085x", "x" * 100000]
        ids = self.tokenize([{"text": t} for t in texts])
        for text, row in zip(texts, ids):
            self.assertEqual(row["ids"], list(text.encode()))
        back = self.tokenize(ids, "--decode")
        self.assertEqual([r["text"] for r in back], texts)

    def test_special_tokens_only_when_asked(self):
        rows = self.tokenize([{"text": "a<|im_end|>", "special": s} for s in (False, True)])
        self.assertEqual(rows[0]["ids"], list(b"a<|im_end|>"))
        self.assertEqual(rows[1]["ids"], [97, 258])
        back = self.tokenize([{"ids": [97, 258]}, {"ids": [97, 258], "special": False}], "--decode")
        self.assertEqual([r["text"] for r in back], ["a<|im_end|>", "a"])

    def test_standard_input_and_words(self):
        result = self.kvikk("tokenize", "-m", self.tiny, stdin='{"text": "ab"}\n\n{"text": "c"}')
        self.assertEqual(result.lines, [{"ids": [97, 98]}, {"ids": [99]}])
        result = self.kvikk("tokenize", "-m", self.tiny, "hi")
        self.assertEqual(result.text, '    104  "h"\n    105  "i"\n')

    def test_answers_come_line_by_line(self):
        process = self.start("tokenize", "-m", self.tiny)
        for text in ("a", "b"):
            process.stdin.write(lines([{"text": text}]).encode())
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline()), {"ids": [ord(text)]})
        process.stdin.close()
        self.assertEqual(process.wait(timeout=20), 0)

    def test_a_vocabulary_without_weights(self):
        path = tiny_model(self.path("vocabulary.gguf"), weights=False)
        result = self.kvikk("tokenize", "-m", path, stdin='{"text": "ab"}')
        self.assertEqual(result.lines, [{"ids": [97, 98]}])

    def test_wrong_lines(self):
        for line, word in (("{", "is not JSON"), ("[]", "object"), ("{}", "'text'"),
                           ('{"text": 1}', "'text'"), ('{"text": "a", "special": 1}', "'special'"),
                           (b'{"text": "\xff"}', "is not JSON"), ("[" * 1000, "brackets"),
                           ("\0", "is not JSON")):
            line = line.encode() if isinstance(line, str) else line
            result = self.kvikk("tokenize", "-m", self.tiny, stdin=b'{"text": "a"}\n' + line)
            self.assert_failed(result, 1, "standard input:2", word)
            self.assertEqual(result.lines, [{"ids": [97]}])
        for ids in ("[260]", "[-1]", "1", "[99999999999999999999]"):
            result = self.kvikk("tokenize", "-m", self.tiny, "--decode", stdin=f'{{"ids": {ids}}}')
            self.assert_failed(result, 1, "standard input:1")
        for path in ("absent.jsonl", self.folder):
            self.assert_failed(self.kvikk("tokenize", "-m", self.tiny, "--in", path), 1, path)


class Template(ProgramTest):
    def test_own_template_and_a_file(self):
        rows = [{"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": True}]
        want = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        result = self.kvikk("template", "-m", self.tiny, "--in", "-", stdin=lines(rows))
        self.assertEqual(result.lines, [{"text": want}])
        jinja = self.path("t.jinja", "{{ bos_token }}{{ strftime_now('%Y') }}{{ messages|length }}")
        rows = [{"messages": [1, 2], "bos_token": "<s>", "now": "2026-01-02T03:04:05"}]
        result = self.kvikk("template", "--template", jinja, stdin=lines(rows))
        self.assertEqual(result.lines, [{"text": "<s>20262"}])

    def test_variables_of_the_vocabulary(self):
        path = tiny_model(self.path("bos.gguf"), template="{{ bos_token }}|{{ eos_token }}")
        result = self.kvikk("template", "-m", path, stdin='{}\n{"bos_token": "x"}')
        self.assertEqual(result.lines, [{"text": f"{SPECIAL[0]}|{SPECIAL[2]}"},
                                        {"text": f"x|{SPECIAL[2]}"}])

    def test_errors_are_results(self):
        jinja = self.path("t.jinja", "{{ raise_exception('no ' + x) }}")
        result = self.kvikk("template", "--template", jinja, stdin='{"x": "way"}\n{"x": "luck"}\n')
        self.assertEqual(result.code, 0)
        self.assertIn("no way", result.lines[0]["error"])
        self.assertIn("no luck", result.lines[1]["error"])
        for text in ("{% if %}", "{{ 1 +", "{% for i in range(10**9) %}{% endfor %}"):
            result = self.kvikk("template", "--template", self.path("t.jinja", text), stdin="{}")
            self.assertEqual(result.code, 0)
            self.assertIn("error", result.lines[0])

    def test_wrong_use(self):
        plain = tiny_model(self.path("plain.gguf"), template=None)
        self.assert_failed(self.kvikk("template", "-m", plain, stdin="{}"), 1, "no chat template")
        self.assert_failed(self.kvikk("template", "--template", "absent.jinja"), 1, "absent.jinja")
        self.assert_failed(self.kvikk("template", "-m", self.tiny, stdin="[]"), 1, "input:1")


if __name__ == "__main__":
    unittest.main()
