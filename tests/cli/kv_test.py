"""--kv: coded caches through the command line, and what is kept of them in the models' folder."""

import os
import unittest

from program import ProgramTest
from tiny_model import tiny_model


class KeptKeys(ProgramTest):
    def logits(self, models, *more):
        out = self.path("logits.f32")
        result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens",
                            self.path("tokens.json", list(range(200))), "--models-dir",
                            self.path(models), "--out", out, "--kv", "turbo4", *more)
        self.assertEqual(result.code, 0, result.error)
        with open(out, "rb") as file:
            return file.read()

    def kept(self, models):
        folder = os.path.join(self.path(models), "cache")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return {name for name in names if name.endswith(".keys")}

    def test_measurements_are_kept_in_the_folder_that_was_asked_for(self):
        first = self.logits("models")
        kept = self.kept("models")
        self.assertEqual(len(kept), 1)
        default = os.path.join(self.environment["XDG_CACHE_HOME"], "kvikk", "models", "cache")
        self.assertFalse(os.path.exists(default))
        self.assertEqual(self.logits("models"), first)
        self.assertEqual(self.kept("models"), kept)
        # A damaged file is measured again.
        path = os.path.join(self.path("models"), "cache", kept.copy().pop())
        with open(path, "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(bytes([byte[0] ^ 255]))
        self.assertEqual(self.logits("models"), first)
        with open(path, "rb") as file:
            file.seek(100)
            self.assertEqual(file.read(1), byte)

    def test_weights_quantized_another_way_are_measured_apart(self):
        self.logits("apart")
        one = self.kept("apart")
        self.logits("apart", "--weights", "q8_0")
        two = self.kept("apart")
        self.assertEqual((len(one), len(two)), (1, 2))
        self.logits("apart", "--kv", "q8")  # a mean and a balance serve all codecs
        self.assertEqual(self.kept("apart"), two)


class Comparisons(ProgramTest):
    """eval needle and eval kv: the tiny model finds nothing, but the tables are all there."""

    TEXT = "It rained. The road was long and nobody spoke. " * 40

    def test_needles(self):
        text = self.path("book.txt", self.TEXT)
        arguments = ["eval", "needle", "-m", self.tiny, "--haystack", text, "--lengths", "300,450",
                     "--depths", 2, "--kv", "bf16,turbo4"]
        plot = self.path("map.svg")
        result = self.kvikk(*arguments, "--json", "--plot", plot)
        self.assertEqual(result.code, 0, result.error)
        results = result.json["results"]
        self.assertEqual([(r["kv"], r["length"], r["depth_percent"]) for r in results],
                         [(kv, length, depth) for kv in ("bf16", "turbo4")
                          for length in (300, 450) for depth in (0, 100)])
        for r in results:
            self.assertIsInstance(r["found"], bool)
            self.assertIsInstance(r["answer"], str)
        self.assertEqual(len(result.json["scores"]), 4)
        with open(plot, encoding="utf-8") as file:
            svg = file.read()
        self.assertEqual(svg.count("<rect"), 1 + 8)
        self.assertTrue(svg.endswith("</svg>\n"))
        table = self.kvikk(*arguments)
        self.assertEqual(table.code, 0, table.error)
        self.assertIn("turbo4", table.text)
        self.assertEqual(table.text.count("/2"), 4)

    def test_needles_wrong_use(self):
        text = self.path("short.txt", "Short. " * 10)
        self.assert_failed(self.kvikk("eval", "needle", "-m", self.tiny), 2, "--haystack")
        arguments = ["eval", "needle", "-m", self.tiny, "--haystack", text, "--depths", 2]
        self.assert_failed(self.kvikk(*arguments, "--lengths", 400), 2, "needs a longer one")
        self.assert_failed(self.kvikk(*arguments, "--lengths", 300, "--kv", "bf16,what"), 2,
                           "'what'", "turbo4")
        book = self.path("book.txt", self.TEXT)
        self.assert_failed(self.kvikk("eval", "needle", "-m", self.tiny, "--haystack", book,
                                      "--lengths", 256, "--depths", 20), 2, "too short for 20")

    def test_table(self):
        arguments = ["eval", "kv", "-m", self.tiny, "--text", self.path("book.txt", self.TEXT),
                     "--ctx", 400, "--needles", 2, "--depth", 320, "--kv", "q8,turbo4,turbo2",
                     "--models-dir", self.path("models")]
        result = self.kvikk(*arguments, "--json")
        self.assertEqual(result.code, 0, result.error)
        rows = result.json["results"]
        self.assertEqual([r["kv"] for r in rows], ["bf16", "q8", "turbo4", "turbo2"])
        self.assertEqual(rows[0]["compression"], 1)
        self.assertNotIn("mean_kl", rows[0])
        self.assertGreater(rows[2]["compression"], rows[1]["compression"])
        self.assertLess(0, rows[1]["mean_kl"])
        self.assertLess(rows[1]["mean_kl"], rows[3]["mean_kl"])
        for r in rows:
            self.assertEqual((r["needles_asked"], r["depth"]), (2, 320))
            self.assertGreater(r["decode_tokens_per_second"], 0)
        table = self.kvikk(*arguments)
        self.assertEqual(table.code, 0, table.error)
        self.assertEqual(len(table.text.splitlines()), 5)
        self.assert_failed(self.kvikk(*arguments, "--kv", "what"), 2, "'what'")

    def test_caches_that_drop_tokens(self):
        text = self.path("book.txt", self.TEXT)
        result = self.kvikk("eval", "kv", "-m", self.tiny, "--text", text, "--ctx", 400,
                            "--needles", 2, "--depth", 320, "--json",
                            "--kv", "streaming,snapkv,pyramidkv")
        self.assertEqual(result.code, 0, result.error)
        _, *rows = result.json["results"]
        self.assertEqual([r["kv"] for r in rows], ["streaming", "snapkv", "pyramidkv"])
        for r in rows:
            self.assertEqual(r["compression"], 4)
            self.assertGreater(r["mean_kl"], 0)
            self.assertNotIn("decode_tokens_per_second", r)
        # The answer to a long prompt changes, and does not depend on how it was computed; one to a
        # short prompt is the exact cache's.
        def answer(prompt, kv, *more):
            run = self.kvikk("run", "-m", self.tiny, "--raw", prompt, "--max-tokens", 40, "--kv",
                             kv, "--temperature", 0, *more)
            self.assertEqual(run.code, 0, run.error)
            return run.text
        long = self.TEXT[:440]
        for kv in ("streaming", "snapkv", "pyramidkv"):
            with self.subTest(kv):
                self.assertEqual(answer("hi", kv), answer("hi", "bf16"))
                self.assertNotEqual(answer(long, kv), answer(long, "bf16"))
                self.assertEqual(answer(long, kv), answer(long, kv, "--chunk", 17))


class Refused(ProgramTest):
    def test_a_codec_that_does_not_fit_names_those_that_do(self):
        result = self.kvikk("run", "-m", self.tiny, "--raw", "hi", "--kv", "kivi4")
        self.assert_failed(result, 2, "'kivi4'", "multiple of 32", "have 16", "turbo4")
        result = self.kvikk("run", "-m", self.tiny, "--raw", "hi", "--kv", "turbo5")
        self.assert_failed(result, 2, "'turbo5'", "turbo4", "polar4", "q4-hadamard")


class SavedCaches(ProgramTest):
    PROMPT = "It rained and the road was long. " * 9  # a token a byte

    def run_json(self, *more, model=None, code=0):
        result = self.kvikk("run", "-m", model or self.tiny, "--raw", self.PROMPT, "--max-tokens",
                            4, "--temperature", 0, "--json", *more)
        self.assertEqual(result.code, code, result.error)
        return result.json if code == 0 else result

    def test_a_prompt_is_not_computed_twice(self):
        for kv in ("bf16", "turbo4", "q8/turbo3"):
            file = self.path("cache.kv")
            first = self.run_json("--save-kv", file, "--kv", kv)
            self.assertEqual(first["cached_tokens"], 0)
            again = self.run_json("--load-kv", file, "--kv", kv)
            self.assertEqual(again["cached_tokens"], len(self.PROMPT) // 64 * 64)
            self.assertEqual(again["text"], first["text"])

    def test_what_does_not_fit_is_refused_by_name(self):
        file = self.path("cache.kv")
        self.run_json("--save-kv", file, "--kv", "turbo4")
        for more, word in ((["--kv", "turbo3"], "turbo3"), (["--kv", "bf16"], "codec"),
                           (["--kv", "turbo4", "--weights", "q8_0"], "q8_0")):
            result = self.run_json("--load-kv", file, *more, code=2)
            self.assertIn("cache.kv", result.error)
            self.assertIn(word, result.error)
        other = tiny_model(self.path("other.gguf"), seed=2)
        result = self.run_json("--load-kv", file, "--kv", "turbo4", model=other, code=2)
        self.assertIn("model", result.error)
        with open(self.tiny, "rb") as original:  # a copy is the same model
            same = self.path("copy.gguf", original.read())
        self.run_json("--load-kv", file, "--kv", "turbo4", model=same)
        with open(file, "r+b") as damaged:
            damaged.seek(3000)
            byte = damaged.read(1)
            damaged.seek(3000)
            damaged.write(bytes([byte[0] ^ 1]))
        result = self.run_json("--load-kv", file, "--kv", "turbo4", code=1)
        self.assertIn("damaged", result.error)
        result = self.run_json("--load-kv", self.path("absent.kv"), code=1)
        self.assertIn("absent.kv", result.error)
        result = self.run_json("--save-kv", self.path("none/x.kv"), code=1)
        self.assertIn("none/x.kv", result.error)

    def test_prompts_are_kept_on_disk_between_runs(self):
        for kv in ("bf16", "turbo4"):
            options = ("--kv", kv, "--prefix-disk", self.path("disk"))
            first = self.run_json(*options)
            self.assertEqual(first["cached_tokens"], 0)
            again = self.run_json(*options)
            self.assertEqual(again["cached_tokens"], len(self.PROMPT) // 64 * 64)
            self.assertEqual(again["text"], first["text"])
        other = tiny_model(self.path("other.gguf"), seed=2)
        self.assertEqual(self.run_json(*options, model=other)["cached_tokens"], 0)
        for folder, _, names in os.walk(self.path("disk")):
            if names:
                self.assertEqual(os.stat(folder).st_mode & 0o077, 0, "texts are nobody else's")
            for name in names:
                with open(os.path.join(folder, name), "r+b") as file:
                    file.seek(-20, os.SEEK_END)
                    byte = file.read(1)
                    file.seek(-20, os.SEEK_END)
                    file.write(bytes([byte[0] ^ 1]))
        damaged = self.run_json(*options)
        self.assertEqual((damaged["cached_tokens"], damaged["text"]), (0, first["text"]))
        result = self.run_json("--prefix-disk", self.tiny, code=1)
        self.assertIn(self.tiny, result.error)

    def test_a_short_prompt_has_nothing_to_save(self):
        result = self.kvikk("run", "-m", self.tiny, "--raw", "hi", "--max-tokens", 2, "--save-kv",
                            self.path("short.kv"))
        self.assert_failed(result, 1, "no whole block of 64")

    def test_another_prompt_is_told_that_the_cache_is_no_use(self):
        file = self.path("cache.kv")
        self.run_json("--save-kv", file)
        result = self.kvikk("run", "-m", self.tiny, "--raw", "Something else. " * 20,
                            "--max-tokens", 2, "--load-kv", file)
        self.assertEqual(result.code, 0, result.error)
        self.assertIn("begins with 0", result.error)

    def test_chat_keeps_the_cache_of_a_conversation(self):
        session = self.path("talk.json")
        script = f"{self.PROMPT[:200]}\n/save {session}\n"
        result = self.kvikk("chat", "-m", self.tiny, "--max-tokens", 2, stdin=script)
        self.assertEqual(result.code, 0, result.error)
        self.assertIn("Saved 1 turn.", result.error)
        self.assertTrue(os.path.exists(session + ".kv"))
        more = self.kvikk("chat", "-m", self.tiny, "--max-tokens", 2, "--json",
                          stdin=f"/load {session}\nhi\n")
        self.assertEqual(more.code, 0, more.error)
        self.assertGreaterEqual(more.lines[0]["cached_tokens"], 192)
        other = self.kvikk("chat", "-m", self.tiny, "--kv", "q8", "--max-tokens", 2, "--json",
                           stdin=f"/load {session}\nhi\n")
        self.assertEqual(other.code, 0, other.error)
        self.assertIn("Without its cache", other.error)
        self.assertEqual(other.lines[0]["cached_tokens"], 0)


class Automatic(ProgramTest):
    def test_the_smallest_within_the_budget_is_chosen_once(self):
        model = tiny_model(self.path("long.gguf"), context=2048)
        folder = self.path("auto")

        def choose(*more):
            result = self.kvikk("run", "-m", model, "--models-dir", folder, "--raw", "hello",
                                "--max-tokens", 2, "--kv", "auto", *more)
            self.assertEqual(result.code, 0, result.error)
            line = next(x for x in result.error.splitlines() if "mean KL" in x)
            return line

        loose = choose("--kv-budget-kl", 1000)
        self.assertIn("cache turbo3: ", loose)
        kept = [n for n in os.listdir(os.path.join(folder, "cache")) if n.endswith(".kvauto")]
        self.assertEqual(len(kept), 1)
        path = os.path.join(folder, "cache", kept[0])
        with open(path, encoding="utf-8") as file:
            self.assertEqual(len(file.read().splitlines()), 2)  # no more than was needed
        strict = choose("--kv-budget-kl", 0)
        self.assertIn("cache bf16: ", strict)
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()[1:]
        distances = {line.split()[0]: float(line.split()[2]) for line in lines}
        self.assertEqual(set(distances), {"turbo3", "fit3", "turbo4", "fit4", "q8/turbo4", "q8"})
        self.assertLess(distances["q8"], distances["turbo4"])
        # What was kept decides, not a new measurement.
        with open(path, "w", encoding="utf-8") as file:
            head = "kvikk auto 1 " + kept[0].split(".")[0]
            file.write(head + "\nturbo3 10 0.5\nq8 20 0.001\n")
        self.assertIn("cache q8: ", choose("--kv-budget-kl", "0.01"))
        # A damaged file is measured again.
        with open(path, "w", encoding="utf-8") as file:
            file.write(head + "\nturbo3 ten\n")
        self.assertEqual(choose("--kv-budget-kl", 1000), loose)

    def test_a_model_that_cannot_be_measured_keeps_the_exact_cache(self):
        result = self.kvikk("run", "-m", self.tiny, "--models-dir", self.path("small"), "--raw",
                            "hello", "--max-tokens", 2, "--kv", "auto")
        self.assertEqual(result.code, 0, result.error)
        self.assertIn("cache bf16: its context is too short", result.error)


if __name__ == "__main__":
    unittest.main()
