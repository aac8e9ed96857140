"""Arguments, help, exit codes, and what goes to which stream."""

import os
import unittest

from program import ROOT, ProgramTest

VERBS = ["chat", "run", "models", "pull", "rm", "inspect", "bench", "eval logits", "eval batch",
         "eval ppl", "eval kl", "tokenize", "template", "search build", "search add",
         "search query", "search info", "search bench", "embed"]


class Usage(ProgramTest):
    def test_help_fits_a_screen_and_shows_two_examples(self):
        for verb in VERBS:
            result = self.kvikk(*verb.split(), "--help")
            self.assertEqual(result.code, 0, verb)
            self.assertEqual(result.error, "")
            lines = result.text.splitlines()
            self.assertLessEqual(len(lines), 32, verb)
            self.assertLessEqual(max(map(len, lines)), 100, verb)
            examples = lines[lines.index("examples:") + 1:]
            self.assertGreaterEqual(len([e for e in examples if "kvikk " + verb in e]), 2, verb)

    def test_overview(self):
        for flag in ("--help", "-h", "help"):
            result = self.kvikk(flag)
            self.assertEqual((result.code, result.error), (0, ""))
            for verb in VERBS:
                self.assertIn(verb, result.text)
        self.assertEqual(self.kvikk("help", "run").text, self.kvikk("run", "--help").text)
        self.assertIn("eval kl", self.kvikk("eval", "--help").text)
        self.assertRegex(self.kvikk("--version").text, r"^kvikk \d+\.\d+\.\d+ \(\S+\)\n$")

    def test_no_verb(self):
        result = self.kvikk()
        self.assert_failed(result, 2, "usage: kvikk VERB")
        self.assertEqual(result.out, b"")

    def test_unknown_verbs(self):
        self.assert_failed(self.kvikk("frobnicate"), 2, "'frobnicate'", "chat", "tokenize")
        self.assert_failed(self.kvikk("tokenise"), 2, "did you mean 'tokenize'?")
        self.assert_failed(self.kvikk("eval"), 2, "logits, batch, ppl, kl")
        self.assert_failed(self.kvikk("eval", "frob"), 2, "'frob'")
        self.assert_failed(self.kvikk("serv"), 2, "no verb 'serv'", "did you mean 'serve'?")
        self.assert_failed(self.kvikk("eval", "btach"), 2, "did you mean 'batch'?")
        self.assertNotIn("did you mean", self.kvikk("", "x").error)
        self.assertLess(len(self.kvikk("x" * 10000).error), 400)
        self.assert_failed(self.kvikk("rm", "/etc/passwd"), 1, "'/etc/passwd'; known are")

    def test_unknown_options(self):
        self.assert_failed(self.kvikk("run", "--temprature", "1", "hi"), 2,
                           "'--temprature'", "did you mean '--temperature'?")
        self.assert_failed(self.kvikk("models", "extra"), 2, "'extra' is one word too many")
        self.assert_failed(self.kvikk("run", "-x", "hi"), 2, "'-x'")
        self.assert_failed(self.kvikk("run", "--threads"), 2, "--threads")
        self.assert_failed(self.kvikk("pull"), 2, "NAME... is missing")
        self.assert_failed(self.kvikk("models", "--threads", "1"), 2, "'--threads'")
        self.assert_failed(self.kvikk("run", "-5 plus 3"), 2, "goes after --")
        self.assertNotIn("goes after", self.kvikk("bench", "-5 plus 3").error)
        for flags in (["--threads=1"], ["--threads", "9", "--threads", "1"], ["--exact=false"],
                      ["--json", "--json"], ["--stop=[x,y]"], ["--stop", "a", "--stop", "b"]):
            result = self.kvikk("run", "-m", self.tiny, "--max-tokens", 1, *flags, "hi")
            self.assertEqual(result.code, 0, result.error)

    def test_numbers_are_checked(self):
        for verb in ("run", "bench"):
            for value in ("-1", "99999999999999999999", "1.5", "two", "", "0x10", "1e3", " 1"):
                result = self.kvikk(verb, "--threads", value, stdin="hi")
                self.assert_failed(result, 2, "--threads is ",
                                   "must be a whole number from 0 to 1024")
                self.assertEqual(result.out, b"")
        for value in ("abc", "-0.1", "nan", "inf", "1e999", "1e7", "--top-p"):
            self.assert_failed(self.kvikk("run", "--temperature", value, "hi"), 2,
                               "--temperature is ", "must be a number from 0 to 1000000")
        self.assert_failed(self.kvikk("bench", "--depth", "0,x"), 2, "--depth is 0,x")
        self.assert_failed(self.kvikk("bench", "--rows", "1,,2"), 2, "--rows")
        self.assert_failed(self.kvikk("run", "--logit-bias", "5=1e9", "hi"), 2, "--logit-bias")
        self.assert_failed(self.kvikk("run", "--stop", "", "hi"), 2, "--stop", "1 to 1024")

    def test_names_are_checked_before_anything_is_fetched(self):
        self.assert_failed(self.kvikk("run", "--kv", "nonsense", "hi"), 2, "'nonsense'", "bf16")
        self.assert_failed(self.kvikk("bench", "--cpu-level", "mmx"), 2, "'mmx'", "scalar")
        self.assertFalse(os.path.exists(self.environment["XDG_CACHE_HOME"]))

    def test_missing_models(self):
        self.assert_failed(self.kvikk("run", "-m", "/nonexistent.gguf", "hi"), 1,
                           "/nonexistent.gguf", "no such file")
        self.assert_failed(self.kvikk("run", "-m", "no-such-name", "hi"), 1, "no-such-name")
        self.assert_failed(self.kvikk("run", "-m", "smollm", "hi"), 1, "smollm2-135m")
        self.assert_failed(self.kvikk("tokenize", "-m", self.folder, "--in", "/dev/null"), 1)
        self.assert_failed(self.kvikk("run", "-m", "", "hi"), 2, "--model")
        self.assert_failed(self.kvikk("rm", "qwen"), 1, "no model 'qwen'")
        self.assert_failed(self.kvikk("rm", "smollm2-135m"), 1, "is not in")

    def test_configuration_file(self):
        config = self.path("config.json", {"max_tokens": 3, "temperature": 0, "top_k": 5,
                                           "stop": ["x"], "logit_bias": {"65": -5}})
        arguments = ["run", "-m", self.tiny, "--json", "--config", config, "hi"]
        result = self.kvikk(*arguments)
        self.assertEqual(result.code, 0, result.error)
        self.assertLessEqual(result.json["completion_tokens"], 3)
        result = self.kvikk(*arguments, "--max-tokens", "2")  # flags go first
        self.assertLessEqual(result.json["completion_tokens"], 2)
        # Options of other verbs may stand in a file that several share.
        self.assertEqual(self.kvikk("models", "--config", config).code, 0)
        foreign = self.path("foreign.json", {"concurrency": 5})
        self.assert_failed(self.kvikk("models", "--config", foreign), 2, "'concurrency'")
        text = '{"threads": 1 // it\'s "quick"\n, /* " */ "top_k": 3}'
        commented = self.path("commented.json", text)
        self.assertEqual(self.kvikk("models", "--config", commented).code, 0)

    def test_wrong_configuration_files(self):
        deep = "[" * 400000 + "]" * 400000
        for text, word in (("{", "column 2"), ("[1]", "JSON object"),
                           ('{"threads": ' + deep + "}", "brackets"),
                           ('{"threads": // "\n' + deep + "}", "brackets"),
                           ('{"threads": /* " */' + deep + "}", "brackets"),
                           ('{"threads": /* *//**/' + deep + "}", "brackets"),
                           ('{"threads": 1}\0{', "NUL byte"),
                           ('{"temprature": 1}', "did you mean 'temperature'?"),
                           ('{"threads": 99999999999999999999}', "threads is"),
                           ('{"threads": "2"}', "threads is"), ('{"threads": 1.5}', "threads"),
                           ('{"stop": [1]}', "stop"), ('{"exact": 1}', "exact is 1"),
                           ('{"temperature": null}', "temperature is null")):
            config = self.path("wrong.json", text)
            result = self.kvikk("run", "-m", self.tiny, "--config", config, "hi")
            self.assert_failed(result, 2, word)
        result = self.kvikk("run", "-m", self.tiny, "--config", self.path("absent.json"), "hi")
        self.assert_failed(result, 2, "absent.json")
        self.assertEqual(self.kvikk("models", "--config", "").code, 2)

    def test_contradictions(self):
        tiny = ["-m", self.tiny]
        for arguments, word in ((["tokenize", *tiny, "a", "--in", "x"], "--in"),
                                (["tokenize", *tiny, "a", "--decode"], "--decode"),
                                (["inspect", "-m", "smollm2-135m", self.tiny], "two models"),
                                (["run", *tiny, "--special", "a"], "--raw"),
                                (["bench", *tiny, "--prefill", "0", "--decode", "0"], "nothing")):
            self.assert_failed(self.kvikk(*arguments), 2, word)
        self.assertEqual(self.kvikk("inspect", *tiny, self.tiny).code, 0)

    def test_the_documentation_lists_every_option(self):
        result = self.kvikk("--help-markdown")
        self.assertEqual(result.code, 0)
        with open(os.path.join(ROOT, "docs", "commands.md"), encoding="utf-8") as file:
            self.assertEqual(file.read(), result.text,
                             "docs/commands.md is old: kvikk --help-markdown > docs/commands.md")


if __name__ == "__main__":
    unittest.main()
