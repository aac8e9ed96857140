"""What the documents say of the sources is there: files, functions, the numbers of the layers."""

import fnmatch
import importlib.util
import os
import re
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/benchmarks.md",
             "docs/sampling.md")
PATH = re.compile(r"(?:[\w.*-]+/)*[\w.*-]+\.(?:h|cpp|md|txt|py|sh|cmake|json|\*)|(?:[\w.-]+/)+")


def load_tidy():
    spec = importlib.util.spec_from_file_location("tidy", os.path.join(ROOT, "tools/tidy.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tidy = load_tidy()
        cls.files = cls.tidy.tracked_files(ROOT)
        cls.code = "\n".join(read(f) for f in cls.files if f.endswith((".h", ".cpp")))

    def is_there(self, path):
        """A path may be written from the root, from src/, or be the bare name of a file."""
        if path.endswith("/"):
            return path.startswith("build/") or any(f.startswith(path) for f in self.files)
        return any(fnmatch.fnmatch(f, prefix + path)
                   for f in self.files for prefix in ("", "src/", "*/"))

    def quoted(self, document):
        return re.findall(r"`([^`\n]+)`", read(document))

    def test_named_files_are_there(self):
        for document in DOCUMENTS:
            for text in self.quoted(document):
                if PATH.fullmatch(text) and not re.search(r"[A-Z]{4}", text.split(".")[0]):
                    self.assertTrue(self.is_there(text), f"{document} names {text}")

    def test_named_functions_are_there(self):
        for document in DOCUMENTS:
            for text in self.quoted(document):
                if re.fullmatch(r"\w+::\w+", text):
                    name = text.split("::")[1]
                    found = re.search(rf"\b{name}\(", self.code)
                    self.assertTrue(found, f"{document} names {text}")

    def test_the_table_of_layers(self):
        rows = re.findall(r"^\| (\d) \| `(src/\w+)/` \|", read("docs/architecture.md"), re.M)
        written = {folder: int(number) for number, folder in rows}
        self.assertEqual(written, {folder: self.tidy.LAYERS[folder] for folder in written})
        there = {"/".join(f.split("/")[:2]) for f in self.files if f.startswith("src/")}
        self.assertEqual(set(written), there)

    def test_presets(self):
        rows = re.findall(r"^\| `(\w+)` \| .* \| `(build/\w*)/?` \|", read("CONTRIBUTING.md"), re.M)
        presets = re.findall(r'"name": "(\w+)",\n\s+"displayName"', read("CMakePresets.json"))
        self.assertEqual([name for name, _ in rows], presets)

    def test_every_script_says_what_it_is_for(self):
        scripts = [f for f in self.files if f.endswith((".sh", ".py"))] + ["kvikk", "test"]
        for script in scripts:
            lines = read(script).split("\n")
            first = lines[1] if lines[0].startswith("#!") else lines[0]
            self.assertRegex(first, r'^(# |r?""")\S', script)


if __name__ == "__main__":
    unittest.main()
