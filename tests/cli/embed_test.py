"""kvikk embed: where texts come from, where vectors go, what is refused."""

import os
import struct
import unittest

from program import MODELS, ProgramTest
from search_test import read_npy

BERT = os.path.join(MODELS, "bert")
TEXTS = ["a small cat", "", "one. two!"]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Embed(ProgramTest):
    def test_all_ways_in_and_out_agree(self):
        lines = os.path.join(self.folder, "lines.txt")
        with open(lines, "w", encoding="utf-8") as file:
            file.write("\r\n".join(TEXTS) + "\n")
        vectors = os.path.join(self.folder, "vectors.npy")
        words = self.kvikk("embed", "-m", BERT, "--json", *TEXTS)
        self.assertEqual(words.code, 0, words.error)
        self.assertEqual([line["index"] for line in words.lines], [0, 1, 2])
        self.assertEqual([line["tokens"] for line in words.lines], [9, 2, 10])
        want = [[single(x) for x in line["embedding"]] for line in words.lines]
        for vector in want:
            self.assertAlmostEqual(sum(x * x for x in vector), 1.0, places=5)
        plain = self.kvikk("embed", "-m", BERT, "--in", lines)
        self.assertEqual([[single(float(x)) for x in line.split(" ")]
                          for line in plain.text.splitlines()], want)
        figures = self.kvikk("embed", "-m", BERT, "--out", vectors, "--json",
                                   stdin="\n".join(TEXTS).encode())
        self.assertEqual(figures.code, 0, figures.error)
        self.assertEqual(read_npy(vectors), want)
        self.assertEqual({k: figures.json[k] for k in ("texts", "dimensions", "tokens", "pooling")},
                         {"texts": 3, "dimensions": 32, "tokens": 21, "pooling": "mean"})

    def test_decoders_too(self):
        result = self.kvikk("embed", "-m", self.tiny, "--json", "--raw", "abc")
        self.assertEqual(result.code, 0, result.error)
        self.assertEqual(len(result.json["embedding"]), 64)
        self.assertEqual(result.json["tokens"], 3)

    def test_refusals(self):
        long = self.kvikk("embed", "-m", BERT, stdin=b"a\n" + b"x" * 90 + b" " + b"y" * 90)
        self.assertEqual(long.code, 2)
        self.assertIn(":2: the text has 182 tokens; the context has 160", long.error)
        cut = self.kvikk("embed", "-m", BERT, "--truncate", "--json",
                               "x" * 90 + " " + "y" * 90)
        self.assertEqual(cut.json["tokens"], 160)
        both = self.kvikk("embed", "-m", BERT, "--in", "x", "a text")
        self.assertEqual(both.code, 2)
        pooling = self.kvikk("embed", "-m", BERT, "--pooling", "max", "a text")
        self.assertEqual(pooling.code, 2)
        self.assertIn("mean, cls, last", pooling.error)
        writes = self.kvikk("run", "-m", BERT, "a text")
        self.assertEqual(writes.code, 1)
        self.assertIn("kvikk embed", writes.error)

    def test_inspect_knows_encoders(self):
        result = self.kvikk("inspect", BERT, "--json").json
        self.assertTrue(result["runs"])
        self.assertTrue(result["encoder"])
        self.assertNotIn("kv", result)
        self.assertIn("embed", self.kvikk("inspect", BERT).text)


class SearchText(ProgramTest):
    """A folder of texts is indexed and searched with two commands."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.texts = os.path.join(cls.folder, "texts")
        os.makedirs(os.path.join(cls.texts, "sub"))
        os.makedirs(os.path.join(cls.texts, ".hidden"))
        cls.one = os.path.join(cls.texts, "one.txt")
        cls.two = os.path.join(cls.texts, "sub", "two.md")
        for path, content in ((cls.one, b"a cat\nand a dog\n\n\nno more than a line of it\n"),
                              (cls.two, b"\r\n" + b"x" * 60 + b" " + b"y" * 60 + b"\n"),
                              (os.path.join(cls.texts, "noise.bin"), b"a\x00b"),
                              (os.path.join(cls.texts, "latin1.txt"), b"caf\xe9"),
                              (os.path.join(cls.texts, ".hidden", "three.txt"), b"hidden")):
            with open(path, "wb") as file:
                file.write(content)
        cls.index = os.path.join(cls.folder, "texts.kvx")
        cls.built = cls.kvikk(cls, "search", "build", "--text", cls.texts, "-o", cls.index,
                              "-m", BERT, "--passage-tokens", "64", "--bits", "8")

    def ask(self, text, *more):
        result = self.kvikk("search", "query", self.index, text, "--json", *more)
        self.assertEqual(result.code, 0, result.error)
        return result.lines

    def test_passages_know_their_places(self):
        self.assertEqual(self.built.code, 0, self.built.error)
        self.assertIn("2 of 4 files were left out", self.built.error)
        found = self.ask("a cat and a dog no more than a line of it")
        places = sorted((line["file"], line["line"], line["last_line"], line["text"].strip())
                        for line in found)
        self.assertEqual(places,
                         [(self.one, 1, 5, "a cat\nand a dog\n\nno more than a line of it"),
                          (self.two, 2, 2, "x" * 60), (self.two, 2, 2, "y" * 60)])
        self.assertEqual(found[0]["file"], self.one)
        self.assertAlmostEqual(found[0]["score"], 1.0, places=2)
        best = self.ask("y" * 60, "--k", 1)
        self.assertEqual([line["text"].strip() for line in best], ["y" * 60])

    def test_text_for_people(self):
        result = self.kvikk("search", "query", self.index, "x" * 60, "--k", "1")
        self.assertEqual(result.code, 0, result.error)
        self.assertRegex(result.text, r"^(0\.99\d|1\.0\d\d)  .*two\.md:2\n    x{60}")

    def test_refusals(self):
        for arguments, words in (
                (("build", "--out", self.index), "--vectors is missing, or --text"),
                (("build", "--text", ".", "--vectors", "a.npy", "-o", "x"), "not both"),
                (("build", "--text", self.folder + "/nothing", "-m", BERT, "-o", "x"),
                 "nothing: cannot be read"),
                (("query", self.index), "INDEX"),
                (("query", self.index, "a", "--only", "x.npy"), "--only does not go")):
            result = self.kvikk("search", *arguments)
            self.assertIn(result.code, (1, 2))
            self.assertIn(words, result.error)

    def test_an_index_among_its_texts(self):
        folder = os.path.join(self.folder, "own")
        os.makedirs(folder)
        text, index = os.path.join(folder, "a.txt"), os.path.join(folder, "own.kvx")
        with open(text, "w", encoding="utf-8") as file:
            file.write("a cat\n")
        build = ("search", "build", "--text", folder, "-m", BERT, "--json", "-o")
        for _ in range(2):  # the second time, the first one's files are there
            self.assertEqual(self.kvikk(*build, index).json["vectors"], 1)
        for source in (folder, text):
            result = self.kvikk("search", "build", "--text", source, "-m", BERT, "-o", text)
            self.assert_failed(result, 2, "a.txt", "--out would replace")
        with open(text, encoding="utf-8") as file:
            self.assertEqual(file.read(), "a cat\n")
        ids = os.path.join(self.folder, "ids.npy")
        result = self.kvikk("search", "add", "--index", index, "--remove", ids)
        self.assert_failed(result, 2, "index of texts", "building again")
        # An index of vectors in its place has no passages.
        vectors = self.path("v.jsonl", '{"vector": [1, 2]}\n')
        self.assertEqual(self.kvikk("search", "build", "--vectors", vectors, "-o", index).code, 0)
        self.assertIn("was not built with --text", self.kvikk("search", "query", index, "a").error)

    def test_passages_of_another_index(self):
        other = os.path.join(self.folder, "other.kvx")
        self.assertEqual(self.kvikk("search", "build", "--text", self.one, "-o", other, "-m",
                                    BERT).code, 0)
        with open(self.index + ".passages", "rb") as file:
            lines = file.read()
        with open(other + ".passages", "wb") as file:
            file.write(lines)
        result = self.kvikk("search", "query", other, "a")
        self.assertEqual(result.code, 1)
        self.assertIn("build it again", result.error)
        # As many passages, other ones: what was found is not there.
        changed = os.path.join(self.folder, "changed.kvx")
        text = self.path("changed.txt", "another text\n")
        self.assertEqual(self.kvikk("search", "build", "--text", text, "-o", changed, "-m",
                                    BERT).code, 0)
        os.replace(changed + ".passages", other + ".passages")
        self.assert_failed(self.kvikk("search", "query", other, "a"), 1, "build it again")
        os.remove(other + ".passages")
        self.assertIn("was not built with --text", self.kvikk("search", "query", other, "a").error)


if __name__ == "__main__":
    unittest.main()
