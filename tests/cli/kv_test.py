"""--kv: coded caches through the command line, and what is kept of them in the models' folder."""

import os
import unittest

from program import ProgramTest


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


if __name__ == "__main__":
    unittest.main()
