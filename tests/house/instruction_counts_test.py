"""Hot kernels do not cost more instructions than recorded: callgrind counts them.

Time is too noisy to guard on a shared machine; instructions of one compiler are not. The record
holds for the compiler that it names. After a change that is meant to change them:

    tests/house/instruction_counts_test.py --record
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(FOLDER, "instruction_counts.json")
PROGRAM = os.environ.get("KVIKK_HOT_KERNELS", "")
HOT = "kvikk::(anonymous namespace)::hot(std::function<void ()> const&)"  # in hot_kernels.cpp
LEVELS = ("scalar", "avx2")
# A gain or loss below this is no news.
TOLERANCE = 0.02


def compiler():
    text = subprocess.run(["c++", "--version"], capture_output=True, text=True).stdout
    return text.splitlines()[0] if text else ""


def count(level):
    """Instructions of each kernel, by name."""
    with tempfile.TemporaryDirectory(prefix="kvikk-callgrind-") as folder:
        out = os.path.join(folder, "out")
        result = subprocess.run(
            ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--toggle-collect={HOT}",
             f"--dump-after={HOT}", f"--callgrind-out-file={out}", PROGRAM, level],
            capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(result.stderr[-2000:])
        names = result.stdout.splitlines()
        totals = []
        for i in range(1, len(names) + 1):
            with open(f"{out}.{i}", encoding="utf-8") as file:
                totals.append(int(re.search(r"^(?:summary|totals): (\d+)", file.read(),
                                            re.MULTILINE).group(1)))
        if len(glob.glob(out + ".*")) < len(names):
            raise RuntimeError("callgrind did not dump every kernel")
        return dict(zip(names, totals))


class InstructionCounts(unittest.TestCase):
    def test_as_recorded(self):
        if not PROGRAM or shutil.which("valgrind") is None:
            self.skipTest("needs the built hot_kernels and valgrind")
        with open(RECORD, encoding="utf-8") as file:
            record = json.load(file)
        if record["compiler"] != compiler():
            self.skipTest(f"the record is for {record['compiler']}")
        for level in LEVELS:
            counts = count(level)
            self.assertEqual(list(counts), list(record[level]), "record again")
            for name, instructions in counts.items():
                before = record[level][name]
                with self.subTest(level=level, kernel=name):
                    self.assertGreater(instructions, 100)
                    self.assertLessEqual(instructions, before * (1 + TOLERANCE),
                                         f"costs more than the recorded {before}")
                    self.assertGreaterEqual(instructions, before * (1 - TOLERANCE),
                                            f"costs less than the recorded {before}: record it")


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        if not PROGRAM:
            sys.exit("KVIKK_HOT_KERNELS must be the path of hot_kernels")
        figures = {"compiler": compiler(), **{level: count(level) for level in LEVELS}}
        with open(RECORD, "w", encoding="utf-8") as out_file:
            json.dump(figures, out_file, indent=1)
            out_file.write("\n")
    else:
        unittest.main()
