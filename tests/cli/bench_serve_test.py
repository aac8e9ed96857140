"""kvikk bench serve against servers whose every pause is known, and against kvikk serve."""

import http.server
import json
import threading
import time
import unittest
import xml.etree.ElementTree

from serve_test import ServeTest

FIRST, NEXT = 0.2, 0.05  # seconds before the first piece of an answer and each of the others
TOKENS_PER_WORD = 2


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        came = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((came, body, self.headers, self.path))
            number = len(self.server.asked)
            self.server.open += 1
            self.server.open_max = max(self.server.open_max, self.server.open)
        if self.server.fails(number):
            self.done()
            self.answer(503, b'{"error":"no room"}')
        else:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for i in range(body["max_tokens"]):
                time.sleep(NEXT if i else FIRST)
                self.event({"choices": [{"index": 0, "text": "x"}]})
            words = len(body["prompt"].split())
            self.event({"choices": [], "usage": {
                "prompt_tokens": words * TOKENS_PER_WORD, "completion_tokens": body["max_tokens"],
                "prompt_tokens_details": {"cached_tokens": 7}}})
            self.chunk(b"data: [DONE]\n\n")
            self.done()
            self.chunk(b"")

    def done(self):
        with self.server.lock:
            self.server.open -= 1

    def answer(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def event(self, data):
        text = b"data: " + json.dumps(data).encode() + b"\n\n"
        self.chunk(text[:9])  # a line in two pieces is one line
        self.chunk(text[9:])

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, *_):
        pass


class BenchServe(ServeTest):
    def setUp(self):
        self.fake = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.fake.lock = threading.Lock()
        self.fake.asked = []
        self.fake.open = self.fake.open_max = 0
        self.fake.fails = lambda number: False
        thread = threading.Thread(target=self.fake.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.fake.server_close)
        self.addCleanup(self.fake.shutdown)
        self.url = f"http://127.0.0.1:{self.fake.server_address[1]}"

    def bench(self, *options, url=None):
        return self.kvikk("bench", "serve", "--url", url or self.url, "--json", *options)

    def result(self, *options):
        result = self.bench(*options)
        self.assertEqual(result.code, 0, result.error)
        return result.json["results"][0]

    def prompts(self):
        return [body["prompt"] for _, body, _, _ in self.fake.asked[1:]]  # the first is a probe

    def test_waits_are_what_they_are(self):
        run = self.result("--requests", 6, "--clients", 3, "--answer", 4, "--prompt", 60,
                          "--shared", 20, "--ttft-ms", 1e6, "--tpot-ms", 1e6)
        self.assertEqual((run["requests"], run["failed"], run["clients"]), (6, 0, 3))
        self.assertEqual((run["completion_tokens"], run["cached_tokens"]), (24, 42))
        self.assertEqual(run["requests_within_limits"], 6)
        ttft, itl, tpot, e2e = (run[f"{name}_seconds"] for name in ("ttft", "itl", "tpot", "e2e"))
        self.assertGreaterEqual(ttft["p50"], FIRST)
        self.assertGreaterEqual(tpot["p50"], NEXT * 0.8)
        self.assertGreaterEqual(itl["mean"], NEXT * 0.8)
        self.assertGreaterEqual(e2e["p50"], FIRST + 3 * NEXT)
        for waits in (ttft, itl, tpot, e2e):
            self.assertLessEqual(waits["p50"], waits["p90"])
            self.assertLessEqual(waits["p99"], waits["max"])
        self.assertLessEqual(ttft["mean"] + 3 * tpot["mean"], e2e["mean"] + 1e-6)
        self.assertEqual(self.fake.open_max, 3)
        # 60 tokens are 30 words here, of which 10 are the same.
        words = [p.split() for p in self.prompts()]
        self.assertEqual({len(w) for w in words}, {30})
        self.assertEqual(len({tuple(w[:10]) for w in words}), 1)
        self.assertEqual(len({tuple(w[10:]) for w in words}), 6)

    def test_limits_decide_what_is_good(self):
        options = ("--requests", 4, "--answer", 3)
        self.assertEqual(self.result(*options, "--ttft-ms", 1)["requests_within_limits"], 0)
        self.assertEqual(self.result(*options, "--ttft-ms", 1e6, "--tpot-ms", 1)
                         ["requests_within_limits"], 0)

    def test_several_numbers_of_clients_and_the_pictures(self):
        plot = self.path("plot.svg")
        result = self.bench("--clients", "1,2", "--requests", 2, "--answer", 2, "--plot", plot)
        self.assertEqual([r["clients"] for r in result.json["results"]], [1, 2])
        self.assertIn("tokens/s of all", "".join(xml.etree.ElementTree.parse(plot).getroot()
                                                 .itertext()))
        self.result("--requests", 2, "--answer", 2, "--plot", plot)
        text = list(xml.etree.ElementTree.parse(plot).getroot().itertext())
        self.assertTrue({"ttft", "itl", "tpot", "e2e"} <= set(text))

    def test_failures_are_counted_and_named(self):
        self.fake.fails = lambda number: number % 2 == 0
        run = self.result("--requests", 6, "--answer", 2)
        self.assertEqual((run["requests"], run["failed"]), (6, 3))
        self.assertIn("503", run["first_error"])
        self.assertEqual(run["requests_within_limits"], 3)

    def test_a_server_that_only_fails(self):
        self.fake.fails = lambda number: number > 1
        result = self.bench("--requests", 3, "--answer", 2)
        self.assert_failed(result, 1, self.url, "no request was answered", "503")
        self.assertEqual(result.json["results"][0]["failed"], 3)
        self.fake.fails = lambda number: True
        self.assert_failed(self.bench(), 1, self.url, "503")

    def test_keys_models_and_paths(self):
        result = self.bench("--requests", 1, "--key", "secret", "--model", "m", "--answer", 1,
                            url=self.url + "/prefix/v1/")
        self.assertEqual(result.code, 0, result.error)
        _, body, headers, path = self.fake.asked[-1]
        self.assertEqual((body["model"], headers["Authorization"]), ("m", "Bearer secret"))
        self.assertEqual(path, "/prefix/v1/completions")

    def arrivals(self):
        times = [came for came, *_ in self.fake.asked[1:]]
        return [t - times[0] for t in times]

    def test_arrivals_at_random_and_in_bursts(self):
        self.result("--requests", 8, "--answer", 1, "--rate", 2, "--burst", 4, "--seed", 3)
        first = self.arrivals()
        self.assertEqual(len(first), 8)
        self.assertGreater(first[4] - first[3], first[3] - first[0])
        run = self.result("--requests", 8, "--answer", 1, "--rate", 10)
        self.assertIsNone(run["clients"])

    def test_a_trace_with_shared_beginnings(self):
        lines = [{"timestamp": 1000 * i, "input_length": 1100, "output_length": 20,
                  "hash_ids": [5, 10 + i, 20 + i]} for i in range(3)]
        trace = self.path("trace.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        run = self.result("--trace", trace, "--trace-length", 0.1, "--trace-speed", 0.5)
        self.assertEqual((run["requests"], run["completion_tokens"]), (3, 6))
        times = self.arrivals()
        self.assertGreater(times[1], 1)  # 2 seconds, if the first was in time
        self.assertGreater(times[2], 3)
        words = [p.split() for p in self.prompts()]
        self.assertEqual({len(w) for w in words}, {26 + 26 + 4})  # 51.2 + 51.2 + 7.6 tokens
        self.assertEqual(len({tuple(w[:26]) for w in words}), 1)
        self.assertEqual(len({tuple(w[26:]) for w in words}), 3)

    def test_a_trace_in_columns(self):
        trace = self.path("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                          "2023-11-16 23:59:58.9000000,40,2\r\n"
                          "2023-11-17 00:00:00.5000000,20,3\r\n")
        run = self.result("--trace", trace)
        self.assertEqual((run["prompt_tokens"], run["completion_tokens"]), (60, 5))
        self.assertGreater(self.arrivals()[1], 0.5)

    def test_what_cannot_be(self):
        for options, word in ((("--rate", 1, "--trace", "x.jsonl"), "--rate"),
                              (("--burst", 2), "--rate"), (("--clients", "0"), "--clients")):
            self.assert_failed(self.bench(*options), 2, word)
        self.assert_failed(self.bench(url="ftp://x"), 2, "--url")
        self.assert_failed(self.bench(url="http://127.0.0.1:1"), 1, "127.0.0.1:1")
        # The fake server has no TLS.
        secret = self.url.replace("http:", "https:")
        self.assert_failed(self.bench(url=secret), 1, secret.removeprefix("https://"))
        wrong = self.path("wrong.jsonl", '{"timestamp": 1}\n')
        self.assert_failed(self.bench("--trace", wrong), 1, "wrong.jsonl", "input_length")
        wrong = self.path("wrong.csv", "TIMESTAMP,A,B\nyesterday,1,2\n")
        self.assert_failed(self.bench("--trace", wrong), 1, "wrong.csv", "TIMESTAMP")

    def test_kvikk_itself(self):
        result = self.kvikk("bench", "serve", "--url", f"http://127.0.0.1:{self.port}",
                            "--requests", 6, "--clients", 3, "--prompt", 200, "--shared", 150,
                            "--answer", 5)
        self.assertEqual(result.code, 0, result.error)
        self.assertIn("3 clients: 6 requests", result.text)
        self.assertIn("ttft", result.text)


if __name__ == "__main__":
    unittest.main()
