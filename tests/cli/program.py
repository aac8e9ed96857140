"""Runs the built program for tests: KVIKK_PROGRAM is its path."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tiny_model import tiny_model  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.path.join(ROOT, "tests", "data", "models")
PROGRAM = os.environ.get("KVIKK_PROGRAM", os.path.join(ROOT, "build", "kvikk"))
# Ctrl-C must be heard within 100 ms; a machine that does much else beside the tests gets more.
INTERRUPT_SECONDS = 4.0
# The tiny model never ends an answer when neither of its end tokens can be drawn.
END_TOKENS_BANNED = {"256": -1000, "258": -1000}
ENDLESS = [word for token, bias in END_TOKENS_BANNED.items()
           for word in ("--logit-bias", f"{token}={bias}")]


class Result:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.error = process.stderr.decode(errors="replace") if process.stderr else ""

    @property
    def text(self):
        return self.out.decode()

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return [json.loads(line) for line in self.text.splitlines()]


class ProgramTest(unittest.TestCase):
    """Gives each test class a folder, a tiny model in it, and an empty home."""

    @classmethod
    def setUpClass(cls):
        cls.folder_holder = tempfile.TemporaryDirectory(prefix="kvikk-test-")
        cls.folder = cls.folder_holder.name
        cls.tiny = tiny_model(os.path.join(cls.folder, "tiny.gguf"))
        cls.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": cls.folder,
            "XDG_CACHE_HOME": os.path.join(cls.folder, "cache"),
            "XDG_STATE_HOME": os.path.join(cls.folder, "state"),
            "TERM": "xterm",
            "LC_ALL": "C.UTF-8",
        }

    @classmethod
    def tearDownClass(cls):
        cls.folder_holder.cleanup()

    def path(self, name, content=None):
        """The path of a file in the folder; writes it when there is content."""
        path = os.path.join(self.folder, name)
        if content is not None:
            if not isinstance(content, (str, bytes)):
                content = json.dumps(content)
            data = content.encode() if isinstance(content, str) else content
            with open(path, "wb") as file:
                file.write(data)
        return path

    def kvikk(self, *arguments, stdin=b"", timeout=120, **more):
        stdin = stdin.encode() if isinstance(stdin, str) else stdin
        source = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        words = [a if isinstance(a, bytes) else str(a) for a in arguments]
        return Result(subprocess.run([PROGRAM, *words], timeout=timeout, env=self.environment,
                                     **source, **more))

    def start(self, *arguments, **more):
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], env=self.environment,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, **more)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream and not stream.closed:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass

    def interrupt(self, process, number=signal.SIGINT):
        """Sends the signal; the exit code and how long the program took to go."""
        start = time.monotonic()
        process.send_signal(number)
        code = process.wait(timeout=20)
        return code, time.monotonic() - start

    def assert_failed(self, result, code, *words):
        self.assertEqual(result.code, code, result.error)
        self.assertIn("kvikk: error: ", result.error)
        for word in words:
            self.assertIn(word, result.error)
