"""Ctrl-C at any moment: exit 130, soon, with what is there."""

import json
import os
import signal
import socket
import threading
import time
import unittest

from program import END_TOKENS_BANNED, ENDLESS, INTERRUPT_SECONDS, ProgramTest


class Interrupt(ProgramTest):
    def assert_interrupted(self, process, number=signal.SIGINT):
        code, seconds = self.interrupt(process, number)
        self.assertEqual(code, 128 + number)
        self.assertLess(seconds, INTERRUPT_SECONDS)

    def test_while_input_is_awaited(self):
        for arguments in (["run", "-m", self.tiny], ["tokenize", "-m", self.tiny],
                          ["template", "-m", self.tiny], ["chat", "-m", self.tiny]):
            process = self.start(*arguments)
            time.sleep(0.5)
            self.assertIsNone(process.poll(), arguments)
            self.assert_interrupted(process)

    def test_while_a_pipe_has_no_writer(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        process = self.start("tokenize", "-m", self.tiny, "--in", pipe)
        time.sleep(0.5)
        self.assert_interrupted(process)

    def test_while_an_answer_comes(self):
        process = self.start("run", "-m", self.tiny, "hi", "--context", "200000", "--seed", "1",
                             *ENDLESS)
        process.stdin.close()
        first = process.stdout.read(1)
        self.assertNotEqual(first, b"")
        self.assert_interrupted(process)
        self.assertTrue((first + process.stdout.read()).endswith(b"\n"))

    def test_json_tells_what_was_there(self):
        for seconds in (1, 4, 16):  # a busy machine needs longer to begin
            process = self.start("run", "-m", self.tiny, "hi", "--context", "200000", "--json",
                                 *ENDLESS)
            process.stdin.close()
            # Read meanwhile: a fast machine says more than a pipe holds.
            parts = []
            reader = threading.Thread(target=lambda: parts.append(process.stdout.read()))
            reader.start()
            time.sleep(seconds)
            self.assert_interrupted(process)
            reader.join()
            output = parts[0]
            if output:
                break
        answer = json.loads(output)
        self.assertEqual(answer["finish_reason"], "cancelled")
        self.assertGreater(len(answer["tokens"]), 0)
        self.assertGreaterEqual(answer["seed"], 0)  # the one that it drew with

    def test_while_a_long_prompt_is_read(self):
        prompt = self.path("prompt.txt", "word " * 40000)
        with open(prompt, "rb") as file:
            process = self.start("run", "-m", self.tiny, "--raw", "--context", "250000",
                                 "--chunk", "4096", "--exact", "--cpu-level", "scalar")
            process.stdin.write(file.read())
        process.stdin.close()
        time.sleep(1)
        self.assert_interrupted(process)

    def test_bench_prints_what_it_has(self):
        arguments = ["bench", "-m", self.tiny, "--prefill", "64", "--decode", "1000000"]
        process = self.start(*arguments)
        while not process.stdout.readline().startswith(b"prefill"):
            self.assertIsNone(process.poll())
        self.assert_interrupted(process)
        process = self.start(*arguments, "--json")
        time.sleep(3)
        self.assert_interrupted(process)
        report = json.loads(process.stdout.read())
        self.assertTrue(report["interrupted"])
        self.assertLessEqual({r["kind"] for r in report["results"]}, {"prefill"})

    def test_batch_keeps_whole_lines(self):
        rows = [{"id": i, "prompt": "a", "max_tokens": 4} for i in range(4)]
        rows.append({"id": 4, "prompt": "a", "max_tokens": 100000,
                     "logit_bias": END_TOKENS_BANNED})
        requests = self.path("requests.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
        out = self.path("answers.jsonl", b"")
        process = self.start("eval", "batch", "-m", self.tiny, "--requests", requests, "--out",
                             out, "--context", "200000")
        while os.path.getsize(out) == 0:
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        time.sleep(0.5)
        self.assert_interrupted(process)
        with open(out, encoding="utf-8") as file:
            ids = [json.loads(line)["id"] for line in file]
        self.assertEqual(ids, [0, 1, 2, 3][:len(ids)])

    def test_while_a_registry_does_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self.environment["PIP_INDEX_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
            process = self.start("pull", "smollm2-135m")
            silent.settimeout(30)
            connection, _ = silent.accept()
            self.assert_interrupted(process)
            connection.close()
            del self.environment["PIP_INDEX_URL"]

    def test_termination(self):
        process = self.start("run", "-m", self.tiny)
        time.sleep(0.5)
        self.assert_interrupted(process, signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
