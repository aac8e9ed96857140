"""The Python module: what the index answers to arrays of all kinds, what it says to wrong ones."""

import os
import pickle
import re
import sys
import tempfile
import textwrap
import threading
import unittest

try:
    import numpy as np
except ImportError:
    np = None
if "KVIKK_PYTHON_FOLDER" in os.environ:
    sys.path.insert(0, os.environ["KVIKK_PYTHON_FOLDER"])
    import kvikk
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
D = 24


def vectors(n, seed):
    return np.random.default_rng(seed).standard_normal((n, D)).astype(np.float32)


@unittest.skipIf(np is None, "needs NumPy")
@unittest.skipIf("KVIKK_PYTHON_FOLDER" not in os.environ, "the module was not built")
class Index(unittest.TestCase):
    def setUp(self):
        self.base, self.queries = vectors(600, 1), vectors(7, 2)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def filled(self, **options):
        index = kvikk.VectorIndex(D, **options)
        index.add(self.base)
        return index

    def assert_same(self, a, b):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)

    def test_finds_the_nearest(self):
        products = self.queries @ self.base.T
        cosines = products / np.linalg.norm(self.base, axis=1)
        distances = ((self.queries[:, None] - self.base[None]) ** 2).sum(2)
        for metric, order in (("ip", -products), ("cos", -cosines), ("l2", distances)):
            index = self.filled(metric=metric, keep="f16", threads=1)
            ids, scores = index.search(self.queries, 5, rerank=200)
            self.assertEqual((ids.dtype, scores.dtype), (np.int64, np.float32))
            self.assertEqual((ids.shape, scores.shape), ((7, 5), (7, 5)))
            np.testing.assert_array_equal(ids[:, 0], np.argmin(order, 1))
            best = np.abs(np.min(order, 1))
            expected = best / (np.linalg.norm(self.queries, axis=1) if metric == "cos" else 1)
            np.testing.assert_allclose(scores[:, 0], expected, rtol=0.02)

    def test_any_array_of_numbers_is_taken(self):
        expected = self.filled().search(self.queries)
        wide = np.zeros((600, 2 * D), np.float32)
        wide[:, ::2] = self.base
        for array in (self.base.astype(np.float64), np.asfortranarray(self.base), wide[:, ::2],
                      self.base.astype(">f4"), self.base.tolist(), self.base[::-1][::-1],
                      memoryview(self.base)):
            index = kvikk.VectorIndex(D)
            index.add(array)
            self.assert_same(index.search(self.queries.tolist()), expected)
        index = kvikk.VectorIndex(D)
        for row in self.base:
            index.add(row)
        self.assert_same(index.search(self.queries), expected)
        self.assertEqual(index.search(self.queries[0])[0].shape, (1, 10))
        half = self.base.astype(np.float16)
        a, b = kvikk.VectorIndex(D), kvikk.VectorIndex(D)
        a.add(half)
        b.add(half.astype(np.float32))
        self.assert_same(a.search(self.queries), b.search(self.queries))
        whole = kvikk.VectorIndex(2)
        for kind in (np.int8, np.uint64, bool):
            whole.add(np.ones((3, 2), kind))
        self.assertEqual(len(whole), 9)

    def test_wrong_arrays_are_refused(self):
        index = self.filled(attributes=0)
        nan = self.base.copy()
        nan[5, 3] = np.nan
        for wrong in (self.base[:, :-1], self.base[None], np.float32(1), np.zeros((0, 3)), nan,
                      np.full((1, D), np.inf), self.base.ravel(), []):
            with self.assertRaises(ValueError):
                index.add(wrong)
        for wrong in (None, "text", b"bytes", object(), {}, self.base.astype(complex),
                      self.base.astype(str), self.base.astype(object), [[1], [2, 3]],
                      np.zeros(2, dtype=[("a", "f4")]), np.array(["2020-01-01"], "M8[D]")):
            for use in (index.add, index.search, index.fit, lambda x: index.range_search(x, 1.0),
                        lambda x: index.probes_for(x, 0.5), lambda x: index.make_lists(x, 2)):
                with self.assertRaises((TypeError, ValueError)):
                    use(wrong)
        with self.assertRaisesRegex(ValueError, r"\[n, 24\], not \[3, 5\]"):
            index.search(np.zeros((3, 5)))
        for ids in ([1.5] * 600, ["a"] * 600, [True] * 600, None.__class__, [[1], [2, 3]]):
            with self.assertRaises(TypeError):
                index.add(self.base, ids)
        for ids in ([1], np.full(600, 2 ** 63, np.uint64), range(601)):
            with self.assertRaises(ValueError):
                index.add(self.base, ids)
        with self.assertRaises(ValueError):
            index.add(self.base, attributes=range(600))
        self.assertEqual(len(index), 600)
        self.assertEqual(index.add(np.zeros((0, D))), None)

    def test_wrong_options_are_refused(self):
        for options in ({"bits": 5}, {"metric": "dot"}, {"keep": "f64"}, {"attributes": 9}):
            with self.assertRaises(ValueError):
                kvikk.VectorIndex(D, **options)
        for dimensions in (0, 4097):
            with self.assertRaises(ValueError):
                kvikk.VectorIndex(dimensions)
        for dimensions in (-1, 1.5, "3", None):
            with self.assertRaises(TypeError):
                kvikk.VectorIndex(dimensions)
        index = self.filled()
        for options in ({"k": 0}, {"k": 2 ** 30}, {"rerank": 5}, {"ranges": [(0, 1, 2)]}):
            with self.assertRaises(ValueError):
                index.search(self.queries, **options)
        for options in ({"k": -1}, {"k": 1.5}, {"ranges": [(0, 1)]}, {"only": "x"}, {"nope": 1}):
            with self.assertRaises(TypeError):
                index.search(self.queries, **options)
        with self.assertRaises(ValueError):
            index.range_search(self.queries, float("nan"))

    def test_changes_filters_and_ranges(self):
        index = kvikk.VectorIndex(D, bits=8, attributes=1)
        index.add(self.base, np.arange(600) * 10, np.arange(600))
        self.assertEqual(index.remove([0, 10, 15]), 2)
        index.add(self.queries, attributes=[[1]] * 7)  # numbered behind the largest
        self.assertEqual(len(index), 605)
        ids, _ = index.search(self.queries, 600)
        self.assertEqual(set(ids[0]) & {5991, 5997, 0, 10}, {5991, 5997})
        ids, scores = index.search(self.queries, 4, only=[30, 50])
        self.assertTrue((np.sort(ids[:, :2], 1) == [30, 50]).all())
        self.assertTrue((ids[:, 2:] == -1).all() and np.isnan(scores[:, 2:]).all())
        ids, _ = index.search(self.queries, 9, ranges=[(0, 100, 108)])
        self.assertEqual(set(ids[0]), set(range(1000, 1090, 10)))
        ids, scores = index.search(self.queries, 605)
        found = index.range_search(self.queries, float(scores[0, 20]))
        np.testing.assert_array_equal(found[0][0], ids[0, :21])
        index.compact()
        self.assertEqual(index.info()["removed"], 0)

    def test_lists_and_fit(self):
        index = kvikk.VectorIndex(D, bits=8, keep="f16")
        index.make_lists(self.base, 10)
        index.fit(self.base)
        index.add(self.base)
        self.assertEqual((index.info()["lists"], index.info()["fitted"]), (10, True))
        probes = index.probes_for(self.queries, 0.9)
        self.assertTrue(1 <= probes <= 10)
        all_lists = index.search(self.queries, probes=10)[0]
        some = index.search(self.queries, probes=probes)[0]
        shared = sum(len(set(a) & set(b)) for a, b in zip(all_lists, some))
        self.assertGreaterEqual(shared, 0.9 * all_lists.size)
        index.refit()
        self.assertEqual(len(index), 600)

    def test_saved_and_pickled(self):
        index = self.filled(keep="int8")
        expected = index.search(self.queries)
        index.save(self.path("a.kvx"))
        loaded = kvikk.VectorIndex.load(self.path("a.kvx"))
        self.assert_same(loaded.search(self.queries), expected)
        loaded.verify()
        with self.assertRaisesRegex(ValueError, "need ids"):
            loaded.add(self.queries)
        loaded.add(self.queries, range(1000, 1007))
        again = pickle.loads(pickle.dumps(index))
        self.assert_same(again.search(self.queries), expected)
        again.add(self.queries)
        self.assertEqual(len(again), 607)
        self.assertIn("607 x 24", repr(again))
        self.assertEqual(len(pickle.loads(pickle.dumps(kvikk.VectorIndex(3)))), 0)
        with self.assertRaises(FileNotFoundError):
            kvikk.VectorIndex.load(self.path("none"))
        with self.assertRaises(OSError):
            index.save(self.path("no/folder"))
        with open(self.path("a.kvx"), "r+b") as file:
            file.write(b"damaged")
        with self.assertRaises(ValueError):
            kvikk.VectorIndex.load(self.path("a.kvx"))
        for state in ((), (b"", 0, 0), ("x", 0, 0), (b"x" * 9000, 1, 0), (1, 2, 3)):
            with self.assertRaises((ValueError, TypeError, RuntimeError)):
                kvikk.VectorIndex.__new__(kvikk.VectorIndex).__setstate__(state)

    def test_other_threads_run_meanwhile(self):
        # While one call is inside the index, this thread must get to run Python.
        big = vectors(4000, 5)
        index = kvikk.VectorIndex(D, bits=8, threads=1)
        index.add(big)
        state = {"inside": False, "stop": False}

        def work():
            for _ in range(100):
                if state["stop"]:
                    break
                state["inside"] = True
                index.search(big)
                index.add(big, range(4000))
                state["inside"] = False
        thread = threading.Thread(target=work)
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # the interpreter takes the lock from nobody: it must be given
        seen = False
        try:
            thread.start()
            while not seen and thread.is_alive():
                seen = state["inside"]
        finally:
            state["stop"] = True
            sys.setswitchinterval(before)
            thread.join()
        self.assertTrue(seen)

    def test_the_page_is_true(self):
        with open(os.path.join(ROOT, "docs", "search.md"), encoding="utf-8") as file:
            part = file.read().split("## From Python\n")[1].split("\n## ")[0]
        code = textwrap.dedent(re.search(r"^    .*\n(?:    .*\n|\n)*", part, re.M).group())
        here = os.getcwd()
        os.chdir(self.folder.name)
        try:
            names = {}
            exec(code, names)
        finally:
            os.chdir(here)
        self.assertEqual(names["ids"].shape, (5, 10))


if __name__ == "__main__":
    unittest.main()
