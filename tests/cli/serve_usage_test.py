"""kvikk serve --usage-file: what each key has used, also of a server that was killed."""

import contextlib
import os
import sqlite3
import unittest

from program import END_TOKENS_BANNED
from serve_test import CHAT, COMPLETE, ServeTest, chat, request_bytes


class Usage(ServeTest):
    def setUp(self):
        self.file = os.path.join(self.folder, self.id() + ".db")
        self.keys = self.path("keys.txt", "ann key-a\nbob key-b\n")

    def serve_keys(self):
        return self.serve("--usage-file", self.file, "--api-key-file", self.keys)

    def rows(self):
        with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True) as ledger:
            return ledger.execute("SELECT key, model, requests, prompt_tokens, cached_tokens, "
                                  "completion_tokens FROM usage ORDER BY key").fetchall()

    @staticmethod
    def key(name):
        return {"Authorization": f"Bearer {name}"}

    def test_what_was_answered_survives_a_kill(self):
        server, port = self.serve_keys()
        used = {"ann": [0] * 4, "bob": [0] * 4}
        for i in range(6):
            name = "ann" if i % 3 else "bob"
            usage = self.post(CHAT, chat(f"The same beginning of a text {i // 2}" * 4), port=port,
                              headers=self.key("key-" + name[0]))["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            more = (1, usage["prompt_tokens"], cached, usage["completion_tokens"])
            used[name] = [a + b for a, b in zip(used[name], more)]
        self.assertGreater(used["ann"][2], 0)
        wanted = [(name, "served", *used[name]) for name in ("ann", "bob")]
        self.wait_until(self.rows, wanted)
        server.kill()
        server.wait()
        self.assertEqual(self.rows(), wanted)
        _, port = self.serve_keys()
        self.post(CHAT, chat(), port=port, headers=self.key("key-b"))
        self.wait_until(lambda: self.rows()[1][2], used["bob"][0] + 1)

    def test_each_key_sees_its_own(self):
        _, port = self.serve_keys()
        self.post(CHAT, chat(), port=port, headers=self.key("key-a"))
        seen = {name: self.call("GET", "/v1/usage", port=port, headers=self.key(name))[1]
                for name in ("key-a", "key-b")}
        self.assertEqual((seen["key-a"]["key"], seen["key-b"]["key"]), ("ann", "bob"))
        self.assertEqual([row["requests"] for row in seen["key-a"]["data"]], [1])
        self.assertEqual(seen["key-b"]["data"], [])
        self.assertEqual(self.call("GET", "/v1/usage", port=port)[0], 401)
        self.assertEqual(self.call("POST", "/v1/usage", {}, port=port,
                                   headers=self.key("key-a"))[0], 405)

    def test_what_was_begun_counts_and_what_was_refused_does_not(self):
        _, port = self.serve("--usage-file", self.file)
        self.assertEqual(self.call("POST", CHAT, chat(temperature=-1), port=port)[0], 400)
        body = {"prompt": "a", "max_tokens": 4000, "stream": True, "logit_bias": END_TOKENS_BANNED}
        client = self.socket(request_bytes(body, COMPLETE), port=port)
        self.assertIn(b"200 OK", client.recv(100))
        client.close()
        self.wait_until(lambda: len(self.rows()), 1)
        key, _, requests, prompt, _, answered = self.rows()[0]
        self.assertEqual((key, requests, prompt), ("", 1, 1))
        self.assertGreater(answered, 0)

    def test_without_the_option_there_is_none(self):
        self.assertEqual(self.call("GET", "/v1/usage")[0], 404)

    def test_a_file_that_was_removed_is_begun_again(self):
        def requests():
            try:
                return sum(row[2] for row in self.rows())
            except sqlite3.OperationalError:  # it is being made
                return 0
        _, port = self.serve("--usage-file", self.file)
        for _ in range(2):
            self.post(CHAT, chat(), port=port)
            self.wait_until(requests, 1)
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self.file + end)

    def test_files_that_cannot_be(self):
        result = self.kvikk("serve", "-m", self.model, "--usage-file",
                            self.path("noise.db", "x" * 4096))
        self.assert_failed(result, 1, "noise.db")
        # A page of it is not what it was.
        _, port = self.serve("--usage-file", self.file)
        self.post(CHAT, chat(), port=port)
        self.wait_until(lambda: len(self.rows()), 1)
        with sqlite3.connect(self.file) as ledger:
            ledger.execute("WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n "
                           "LIMIT 1000) INSERT INTO usage SELECT 'key ' || i, 'm', 'd', 1, 1, 1, 1 "
                           "FROM n")
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ledger.close()
        copy = self.file + ".damaged"
        with open(self.file, "rb") as file:
            pages = bytearray(file.read())
        self.assertGreater(len(pages), 4 * 4096)
        pages[3 * 4096:4 * 4096] = b"\xff" * 4096
        with open(copy, "wb") as file:
            file.write(pages)
        self.assert_failed(self.kvikk("serve", "-m", self.model, "--usage-file", copy), 1,
                           ".damaged")

    def test_a_key_stands_once(self):
        keys = self.path("twice.txt", "ann key-a\nbob key-a\n")
        result = self.kvikk("serve", "-m", self.model, "--api-key-file", keys)
        self.assert_failed(result, 2, "twice.txt:2", "'ann' again")


if __name__ == "__main__":
    unittest.main()
