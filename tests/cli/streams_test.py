"""Standard streams that are closed, full, or gone."""

import os
import resource
import subprocess
import unittest

from program import PROGRAM, ProgramTest


class Streams(ProgramTest):
    def shell(self, command):
        return subprocess.run(["sh", "-c", command, "sh", PROGRAM, self.tiny], timeout=120,
                              env=self.environment, capture_output=True)

    def test_full_disk_behind_standard_output(self):
        for command in ('"$1" models >/dev/full', '"$1" --help >/dev/full',
                        '"$1" run -m "$2" hi >/dev/full </dev/null',
                        '"$1" run -m "$2" hi --json >/dev/full </dev/null',
                        '"$1" inspect "$2" >/dev/full',
                        'echo "{\\"text\\": \\"a\\"}" | "$1" tokenize -m "$2" >/dev/full'):
            result = self.shell(command)
            self.assertEqual(result.returncode, 1, (command, result.stderr))
            self.assertIn(b"standard output cannot be written: No space left", result.stderr)

    def test_closed_standard_output(self):
        result = self.shell('"$1" models >&-')
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"standard output cannot be written", result.stderr)
        # A file that is opened must not become standard output.
        out = self.path("logits.f32")
        tokens = self.path("tokens.json", [1, 2])
        result = self.shell(f'"$1" eval logits -m "$2" --tokens {tokens} --out {out} --greedy 2'
                            ' >&-')
        self.assertEqual(result.returncode, 1)
        self.assertEqual(os.path.getsize(out), 2 * 260 * 4)

    def test_nobody_reads(self):
        # Exit 1 without a word, as `yes | head` is silent; never a signal.
        for command in ('"$1" models', '"$1" run -m "$2" hi --max-tokens 400 </dev/null'):
            reader, writer = os.pipe()
            os.close(reader)
            arguments = ["sh", "-c", "exec " + command, "sh", PROGRAM, self.tiny]
            result = subprocess.run(arguments, stdout=writer, stderr=subprocess.PIPE, timeout=120,
                                    env=self.environment)
            os.close(writer)
            self.assertEqual((result.returncode, result.stderr), (1, b""), command)

    def test_closed_standard_input_and_error(self):
        result = self.shell('"$1" run -m "$2" hi --max-tokens 3 <&-')
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.shell('"$1" models 2>&-').returncode, 0)
        self.assertEqual(self.shell('"$1" frobnicate 2>&-').returncode, 2)
        self.assertEqual(self.shell('"$1" frobnicate <&- >&- 2>&-').returncode, 2)

    def test_results_that_cannot_be_written(self):
        tokens = self.path("tokens.json", [1, 2])
        for out, word in (("/dev/full", "No space left"), ("/nonexistent/x", "No such file"),
                          (self.folder, "directory")):
            result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", tokens, "--out", out)
            self.assert_failed(result, 1, out, word)
        requests = self.path("requests.jsonl", '{"prompt": "a", "max_tokens": 2}\n')
        result = self.kvikk("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                            "/dev/full")
        self.assert_failed(result, 1, "/dev/full", "No space left")

    def test_what_is_read_is_not_overwritten(self):
        def content(path):
            with open(path, "rb") as file:
                return file.read()
        model = self.path("model.gguf", content(self.tiny))
        tokens = self.path("tokens.json", [1, 2])
        positions = self.path("positions.json", [1])
        os.link(model, self.path("link.gguf"))
        for out in (model, self.path("link.gguf"), tokens, positions):
            before = content(out)
            result = self.kvikk("eval", "logits", "-m", model, "--tokens", tokens, "--positions",
                                positions, "--out", out)
            self.assert_failed(result, 2, "is also read here")
            self.assertEqual(content(out), before)

    def test_limits_of_the_system(self):
        for count in range(4, 9):
            result = self.kvikk("run", "-m", self.tiny, "hi", "--max-tokens", 3, preexec_fn=lambda:
                                resource.setrlimit(resource.RLIMIT_NOFILE, (count, count)))
            self.assertIn(result.code, (0, 1, 127), result.error)  # 127: no library can be loaded
        tokens, out = self.path("tokens.json", [1] * 40), self.path("large.f32")
        command = f'ulimit -f 8; exec "$1" eval logits -m "$2" --tokens "{tokens}" --out "{out}"'
        result = self.shell(command)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("File too large", result.stderr.decode())

    def test_a_plot_that_cannot_be_written_is_found_before_the_measurement(self):
        result = self.kvikk("bench", "-m", self.tiny, "--plot", "/nonexistent/x.svg")
        self.assert_failed(result, 1, "/nonexistent/x.svg")
        self.assertEqual(result.out, b"")

    def test_a_failure_leaves_the_file_that_was_there(self):
        out = self.path("precious.f32", b"precious")
        tokens = self.path("tokens.json", [10**6])
        result = self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", tokens, "--out", out)
        self.assertIn(result.code, (1, 2))
        with open(out, "rb") as file:
            self.assertEqual(file.read(), b"precious")
        fresh = self.path("fresh.f32")
        self.kvikk("eval", "logits", "-m", self.tiny, "--tokens", tokens, "--out", fresh)
        self.assertFalse(os.path.exists(fresh))


if __name__ == "__main__":
    unittest.main()
