"""The program and the models of its catalog, as the tests with real models use them."""

import json
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("KVIKK_PROGRAM", os.path.join(ROOT, "build", "kvikk"))


def kvikk(*arguments, stdin="", timeout=300):
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin.encode(), timeout=timeout,
                          capture_output=True, check=True).stdout.decode()


def find_model(name):
    """The catalog's copy, or a file of that name in the folder KVIKK_MODELS."""
    for entry in json.loads(kvikk("models", "--json")):
        if entry["name"] == name and entry["fetched"]:
            return name
    folder = os.environ.get("KVIKK_MODELS", "")
    for file in sorted(os.listdir(folder) if folder else []):
        letters = re.sub("[^a-z0-9]", "", file.lower())
        if letters.startswith(re.sub("[^a-z0-9]", "", name)) and file.endswith(".gguf"):
            return os.path.join(folder, file)
    raise unittest.SkipTest(f"{name} is not here: kvikk pull {name}")


def batch(model, requests, *options, timeout=300):
    """What `kvikk eval batch` answers to the requests, and its figures."""
    with tempfile.TemporaryDirectory(prefix="kvikk-test-") as folder:
        source, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in requests)
        figures = kvikk("eval", "batch", "-m", model, "--requests", source, "--out", out, "--json",
                        *options, timeout=timeout)
        with open(out, encoding="utf-8") as file:
            return [json.loads(line) for line in file], json.loads(figures)
