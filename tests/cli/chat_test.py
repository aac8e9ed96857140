"""chat: through a pipe, and on a terminal of its own."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
import unittest

from program import INTERRUPT_SECONDS, PROGRAM, ProgramTest
from tiny_model import tiny_model

B = ["--logit-bias", "66=1000"]  # the model says "BBB..."


class Piped(ProgramTest):
    def chat(self, text, *more):
        result = self.kvikk("chat", "-m", self.tiny, *more, stdin=text)
        self.assertEqual(result.code, 0, result.error)
        return result

    def test_each_line_is_a_message(self):
        result = self.chat("one\n\ntwo\n", "--max-tokens", 3, *B)
        self.assertEqual((result.text, result.error), ("BBB\nBBB\n", ""))

    def test_turns_grow_and_come_from_the_cache(self):
        message = "hello " * 20
        turns = self.chat(f"{message}\n{message}\n/clear\n{message}\n", "--max-tokens", 2, "--json",
                          *B).lines
        first, second, third = turns
        self.assertEqual(second["prompt_tokens"], 2 * first["prompt_tokens"] + 2 + 2 - 0)
        self.assertGreaterEqual(second["cached_tokens"], 64)
        self.assertEqual(third["prompt_tokens"], first["prompt_tokens"])

    def test_messages_of_several_lines(self):
        counts = [a["prompt_tokens"] for a in self.chat(
            'a\\\nb\n/clear\n"""a\nb"""\n/clear\n"""a\nb\n"""\n/clear\n"""ab"""\n', "--max-tokens",
            1, "--json").lines]
        self.assertEqual([c - counts[0] for c in counts], [0, 0, 1, -1])

    def test_commands(self):
        saved = self.path("saved.json")
        result = self.chat(f"/help\n/stats\n/system Be brief.\nhi\n/stats\n/save {saved}\n/clear\n"
                           f"/load {saved}\n/frob\n/save\n/exit\nnot sent\n", "--max-tokens", 2, *B)
        self.assertEqual(result.text, "BB\n")
        for word in ("/system TEXT", "no answer yet", "Be brief.", "answer 2 tokens",
                     "of 512 tokens", "Saved 1 turn.", "Loaded 1 turn.", "no command /frob",
                     "/save needs"):
            self.assertIn(word, result.error)
        with open(saved, encoding="utf-8") as file:
            self.assertEqual(json.load(file), {
                "system": "Be brief.",
                "messages": [{"role": "user", "content": "hi"},
                             {"role": "assistant", "content": "BB"}]})

    def test_files_that_are_no_conversation(self):
        for text in ("{", "[]", "{}", '{"messages": 1}', '{"messages": [1]}',
                     '{"messages": [{"role": "assistant", "content": "x"}]}',
                     '{"messages": [{"role": "user", "content": "x"}]}',
                     '{"messages": [{"role": "user", "content": 1}]}'):
            path = self.path("wrong.json", text)
            result = self.chat(f"/load {path}\n/load {self.folder}/absent\n/save /dev/full\n")
            self.assertIn("wrong.json", result.error)
            self.assertIn("absent", result.error)
            self.assertIn("No space left", result.error)

    def test_a_full_context_says_so(self):
        result = self.chat("a" * 600 + "\nhi\n", "--max-tokens", 2, *B)
        self.assertEqual(result.text, "BB\n")
        self.assertRegex(result.error, r"context is full: .* 6\d\d tokens, and 512 fit. /clear")
        result = self.chat("a\n", *B)  # goes on until nothing fits
        self.assertIn("The context is full: all 512 tokens", result.error)

    def test_a_base_model_continues(self):
        plain = tiny_model(self.path("plain.gguf"), template=None)
        result = self.kvikk("chat", "-m", plain, "--max-tokens", 2, "--json", *B,
                            stdin="abc\ndef\n")
        self.assertEqual([a["prompt_tokens"] for a in result.lines], [3, 8])

    def test_interrupt_stops_the_answer_not_the_program(self):
        process = self.start("chat", "-m", self.tiny, "--context", 200000, *B)
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.read(20), b"B" * 20)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        while process.stdout.read(1) != b"\n":
            self.assertLess(time.monotonic() - start, 10)
        process.stdin.write(b"/stats\n/exit\n")
        process.stdin.flush()
        self.assertEqual(process.wait(timeout=20), 0)
        self.assertIn(b"of 200,000 tokens", process.stderr.read())


class Terminal(ProgramTest):
    def setUp(self):
        self.process, self.screen, self.shown = None, None, ""

    def tearDown(self):
        if self.process:
            self.end(self.process)
            os.close(self.screen)

    def open(self, *more):
        self.screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [PROGRAM, "chat", "-m", self.tiny, *map(str, more)], env=self.environment, stdin=inside,
            stdout=inside, stderr=inside, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # so that ^C is a signal
        os.close(inside)
        self.wait_for(">>> ")

    def type(self, text):
        os.write(self.screen, text.encode())

    def wait_for(self, text, seconds=30):
        """Reads the screen until `text` is on it; what comes after it stays for the next call."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            left = end - time.monotonic()
            self.assertGreater(left, 0, f"{text!r} did not come: {self.shown[-300:]!r}")
            if select.select([self.screen], [], [], left)[0]:
                try:
                    data = os.read(self.screen, 65536)
                except OSError:  # the other side is closed
                    data = b""
                self.assertTrue(data, f"{text!r} did not come: {self.shown[-300:]!r}")
                self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode(errors="replace"))
        before, _, self.shown = self.shown.partition(text)
        return before

    def test_editing_and_history(self):
        self.open("--max-tokens", 2, *B)
        self.type("helloo\x7f wörld\n")  # with a backspace
        self.wait_for("BB")
        self.wait_for(">>> ")
        self.type("\x10\n")  # Ctrl-P: the line before
        self.wait_for("hello wörld")
        self.wait_for("BB")
        self.wait_for(">>> ")
        self.type("\x04")  # Ctrl-D
        self.assertEqual(self.process.wait(timeout=20), 0)
        history = os.path.join(self.environment["XDG_STATE_HOME"], "kvikk", "history")
        self.assertEqual(os.stat(history).st_mode & 0o777, 0o600)
        self.tearDown()
        self.setUp()
        self.open("--max-tokens", 2, *B)  # the history outlives the program
        self.type("\x10\n")
        self.wait_for("hello wörld")
        self.wait_for(">>> ")
        self.type("/exit\n")
        self.assertEqual(self.process.wait(timeout=20), 0)

    def test_interrupts(self):
        self.open("--context", 200000, *B)
        self.type("hi\n")
        self.wait_for("BBBBBBBB")
        self.type("\x03")  # the terminal makes SIGINT of it
        start = time.monotonic()
        self.wait_for(">>> ", INTERRUPT_SECONDS + 5)
        self.type("half a line\x03")
        self.wait_for("Ctrl-C again leaves")
        self.wait_for(">>> ")
        self.type("/stats\n")  # the half line is gone
        self.wait_for("of 200,000 tokens")
        self.wait_for(">>> ")
        self.type("\x03")
        self.wait_for(">>> ")
        start = time.monotonic()
        self.type("\x03")
        self.assertEqual(self.process.wait(timeout=20), 130)
        self.assertLess(time.monotonic() - start, INTERRUPT_SECONDS)

    def test_the_end_of_the_program_leaves_the_terminal_as_it_was(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            for wait, text in ((">>> ", "half a line"), ("BBBB", "hi\n")):
                self.open("--context", 200000, *B)
                self.type(text)
                self.wait_for(text[:4] if wait == ">>> " else wait)
                self.process.send_signal(number)
                self.assertEqual(self.process.wait(timeout=20), 128 + number)
                mode = termios.tcgetattr(self.screen)[3]
                self.assertTrue(mode & termios.ICANON and mode & termios.ECHO, (number, wait))
                self.assertNotIn("again leaves", self.shown)
                self.tearDown()
                self.setUp()

    def test_nohup(self):
        command = ["sh", "-c", 'trap "" HUP; exec "$0" "$@"', PROGRAM, "chat", "-m", self.tiny,
                   "--max-tokens", "2", *B]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   env=self.environment)
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.read(3), b"BB\n")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(process.communicate(b"hi\n", timeout=20)[0], b"BB\n")
        self.assertEqual(process.returncode, 0)

    def test_files_cannot_play_with_the_terminal(self):
        session = self.path("session.json", {"system": "a\x1b[31mb\x9bc", "messages": []})
        self.open("--max-tokens", 2)
        self.type(f"/load {session}\n/system\n")
        self.wait_for("a\ufffd[31mb\ufffdc")
        self.wait_for(">>> ")
        self.type("\x04")
        self.assertEqual(self.process.wait(timeout=20), 0)

    def test_answers_cannot_play_with_the_terminal(self):
        self.open("--max-tokens", 2, "--logit-bias", "27=1000")  # escape characters
        self.type("hi\n")
        self.wait_for("\ufffd\ufffd")
        self.wait_for(">>> ")
        self.type("\x04")
        self.assertEqual(self.process.wait(timeout=20), 0)


if __name__ == "__main__":
    unittest.main()
