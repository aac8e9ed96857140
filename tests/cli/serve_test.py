"""kvikk serve over raw sockets: the APIs, what they refuse, clients that misbehave, stopping."""

import concurrent.futures
import http.client
import json
import os
import re
import resource
import signal
import socket
import time
import unittest

from program import END_TOKENS_BANNED, ProgramTest
from tiny_model import tiny_model

CHAT = "/v1/chat/completions"
COMPLETE = "/v1/completions"
ENDLESS_TOKENS = 200000  # the tiny model is fast, and this takes minutes nevertheless
SECONDS_MAX = 200  # for anything that should be quick, on a machine that does much else


class ServeTest(ProgramTest):
    """Starts a server of the tiny model for each test class."""

    options = ()
    context = 4096

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = tiny_model(os.path.join(cls.folder, "served.gguf"), context=cls.context)
        cls.holder = cls("run")
        cls.server, cls.port = cls.holder.serve(*cls.options)

    @classmethod
    def tearDownClass(cls):
        cls.holder.doCleanups()
        super().tearDownClass()

    def serve(self, *options, model=None):
        process = self.start("serve", "-m", model or self.model, "--port", 0, *options)
        lines = []
        for line in process.stderr:
            lines.append(line.decode())
            found = re.search(r"listening on https?://[^:]+:(\d+)", lines[-1])
            if found:
                return process, int(found.group(1))
        self.fail("the server did not start: " + "".join(lines))

    def call(self, method, path, body=None, headers=None, raw=None, port=None):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port,
                                                timeout=SECONDS_MAX)
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        try:
            return response.status, json.loads(text), response
        except ValueError:
            return response.status, text.decode(errors="replace"), response

    def post(self, path, body, **more):
        status, answer, _ = self.call("POST", path, body, **more)
        self.assertEqual(status, 200, answer)
        return answer

    def stream(self, path, body, port=None):
        """The data of each event."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port,
                                                timeout=SECONDS_MAX)
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertIn("text/event-stream", response.getheader("Content-Type"))
        events = [line[6:] for line in response.read().decode().split("\n")
                  if line.startswith("data: ")]
        connection.close()
        return events

    def metric(self, name, port=None):
        text = self.call("GET", "/metrics", port=port)[1]
        values = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? ([0-9.e+-]+)$", text, re.M)
        self.assertTrue(values, name)
        return sum(map(float, values))

    def wait_until(self, what, wanted=True):
        end = time.monotonic() + SECONDS_MAX
        while time.monotonic() < end:
            if what() == wanted:
                return
            time.sleep(0.02)
        self.fail(f"{what()} did not become {wanted}")

    def socket(self, data=b"", port=None):
        connection = socket.create_connection(("127.0.0.1", port or self.port), SECONDS_MAX)
        self.addCleanup(connection.close)
        connection.sendall(data)
        return connection

    @staticmethod
    def read_all(connection):
        data = b""
        while True:
            try:
                part = connection.recv(65536)
            except ConnectionResetError:
                return data
            if not part:
                return data
            data += part


def chat(text="Hello", **more):
    return {"model": "served", "messages": [{"role": "user", "content": text}], "max_tokens": 12,
            "temperature": 0, **more}


def request_bytes(body, path=CHAT, method="POST", extra=""):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{extra}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


class Apis(ServeTest):
    def test_chat(self):
        answer = self.post(CHAT, chat())
        choice = answer["choices"][0]
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(answer["model"], "served")
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertIn(choice["finish_reason"], ("stop", "length"))
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_the_same_bytes_as_eval_batch(self):
        bodies = [chat(f"Question {i} " * (i + 1), temperature=i % 2 * 0.9, seed=i, max_tokens=20)
                  for i in range(8)]
        requests = self.path("requests.jsonl", "".join(
            json.dumps({k: v for k, v in b.items() if k != "model"}) + "\n" for b in bodies))
        out = self.path("answers.jsonl")
        result = self.kvikk("eval", "batch", "-m", self.model, "--requests", requests, "--out", out)
        self.assertEqual(result.code, 0, result.error)
        with open(out, encoding="utf-8") as file:
            wanted = [json.loads(line)["text"] for line in file]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            got = list(threads.map(lambda b: self.post(CHAT, b), bodies))
            streamed = list(threads.map(lambda b: self.stream(CHAT, b), bodies))
        self.assertEqual([g["choices"][0]["message"]["content"] for g in got], wanted)
        texts = ["".join(json.loads(e)["choices"][0]["delta"].get("content", "")
                         for e in events[:-1]) for events in streamed]
        self.assertEqual(texts, wanted)

    def test_many_clients_hear_the_same_as_one(self):
        bodies = [{"prompt": f"Client {i}: " + "words " * (i * 7 % 50), "max_tokens": 15,
                   "temperature": 0 if i % 3 else 1, "seed": i} for i in range(32)]
        alone = [self.post(COMPLETE, b)["choices"] for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            together = [a["choices"] for a in threads.map(lambda b: self.post(COMPLETE, b), bodies)]
        self.assertEqual(together, alone)

    def test_a_stream_has_its_parts(self):
        body = chat(stream_options={"include_usage": True}, n=2, temperature=1, seed=5)
        whole = self.post(CHAT, {k: v for k, v in body.items() if k != "stream_options"})
        events = self.stream(CHAT, body)
        self.assertEqual(events[-1], "[DONE]")
        parts = [json.loads(e) for e in events[:-1]]
        self.assertEqual({p["object"] for p in parts}, {"chat.completion.chunk"})
        self.assertEqual(len({p["id"] for p in parts}), 1)
        self.assertEqual([p["choices"][0]["delta"].get("role") for p in parts[:2]],
                         ["assistant"] * 2)
        for index in range(2):
            mine = [c for p in parts for c in p["choices"] if c["index"] == index]
            text = "".join(c["delta"].get("content", "") for c in mine)
            self.assertEqual(text, whole["choices"][index]["message"]["content"])
            self.assertEqual([c["finish_reason"] for c in mine][-1],
                             whole["choices"][index]["finish_reason"])
            self.assertEqual({c["finish_reason"] for c in mine[:-1]}, {None})
        self.assertEqual(parts[-1]["choices"], [])
        self.assertEqual({k: v for k, v in parts[-1]["usage"].items() if k.endswith("s")},
                         {k: v for k, v in whole["usage"].items() if k.endswith("s")} |
                         {"prompt_tokens_details": parts[-1]["usage"]["prompt_tokens_details"]})

    def test_choices_and_seeds(self):
        body = chat(n=3, temperature=1, seed=11, max_tokens=16)
        texts = [c["message"]["content"] for c in self.post(CHAT, body)["choices"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual([c["message"]["content"] for c in self.post(CHAT, body)["choices"]], texts)
        self.assertEqual(self.post(CHAT, {**body, "n": 1})["choices"][0]["message"]["content"],
                         texts[0])
        self.assertEqual(self.post(CHAT, body)["usage"]["completion_tokens"],
                         sum(self.post(CHAT, {**body, "n": 1, "seed": 11 + i})["usage"]
                             ["completion_tokens"] for i in range(3)))

    def test_stop(self):
        bias = {"logit_bias": {"66": 1000}}  # B and nothing else
        answer = self.post(COMPLETE, {"prompt": "A", "max_tokens": 9, **bias})
        self.assertEqual(answer["choices"][0]["text"], "B" * 9)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        for stop in ("BBB", ["x", "BBB"]):
            answer = self.post(COMPLETE, {"prompt": "A", "max_tokens": 9, "stop": stop, **bias})
            self.assertEqual(answer["choices"][0]["text"], "")
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")

    def test_logprobs(self):
        body = chat(logprobs=True, top_logprobs=3, max_tokens=5)
        entries = self.post(CHAT, body)["choices"][0]["logprobs"]["content"]
        self.assertGreater(len(entries), 0)
        for entry in entries:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertEqual(entry["top_logprobs"][0]["token"], entry["token"])
            self.assertEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
            self.assertLessEqual(entry["logprob"], 0)
        streamed = [c["logprobs"]["content"] for e in self.stream(CHAT, body)[:-1]
                    for c in json.loads(e)["choices"] if c["logprobs"]]
        self.assertEqual([e for part in streamed for e in part], entries)
        old = self.post(COMPLETE, {"prompt": "abc", "max_tokens": 4, "logprobs": 2,
                                   "temperature": 0})["choices"][0]["logprobs"]
        self.assertEqual(len(old["tokens"]), len(old["token_logprobs"]))
        self.assertEqual(len(old["tokens"]), len(old["text_offset"]))

    def test_prompts_of_completions(self):
        one = self.post(COMPLETE, {"prompt": "abc", "max_tokens": 4, "temperature": 0})
        tokens = self.post(COMPLETE, {"prompt": [97, 98, 99], "max_tokens": 4, "temperature": 0})
        self.assertEqual(one["choices"], tokens["choices"])
        several = self.post(COMPLETE, {"prompt": ["abc", "x"], "n": 2, "max_tokens": 4,
                                       "temperature": 0})
        self.assertEqual([c["index"] for c in several["choices"]], [0, 1, 2, 3])
        self.assertEqual(several["choices"][0]["text"], one["choices"][0]["text"])
        self.assertEqual(several["usage"]["prompt_tokens"], 4)

    def test_the_prefix_cache(self):
        first = chat("prefix " * 60 + "A")
        self.post(CHAT, first)
        usage = self.post(CHAT, chat("prefix " * 60 + "B"))["usage"]
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], 384)

    def test_models_health_loads(self):
        models = self.call("GET", "/v1/models")[1]
        self.assertEqual([m["id"] for m in models["data"]], ["served"])
        self.assertEqual(self.call("GET", "/v1/models/served")[1]["object"], "model")
        self.assertEqual(self.call("GET", "/health")[0], 200)
        loads = self.call("GET", "/v1/loads")[1]
        self.assertEqual(loads["parallel"], 16)
        self.assertIn("kv_cache_usage", loads)

    def test_metrics(self):
        before = self.metric("vllm:generation_tokens_total")
        answer = self.post(CHAT, chat())
        after = self.metric("vllm:generation_tokens_total")
        self.assertEqual(after - before, answer["usage"]["completion_tokens"])
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                     "vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds_count",
                     "vllm:inter_token_latency_seconds_count", "vllm:cache_config_info",
                     "vllm:e2e_request_latency_seconds_count", "kvikk:kv_slabs_leaked"):
            self.metric(name)


class OtherApis(ServeTest):
    def test_messages(self):
        body = {"max_tokens": 12, "temperature": 0,
                "messages": [{"role": "user", "content": "Hello"}]}
        answer = self.post("/v1/messages", body)
        self.assertEqual(answer["content"][0]["text"],
                         self.post(CHAT, chat())["choices"][0]["message"]["content"])
        self.assertEqual(set(answer["usage"]), {"input_tokens", "cache_creation_input_tokens",
                                                "cache_read_input_tokens", "output_tokens"})
        events = [json.loads(e) for e in self.stream("/v1/messages", body)]
        kinds = [e["type"] for e in events]
        self.assertEqual(kinds[:2], ["message_start", "content_block_start"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        self.assertEqual("".join(e["delta"]["text"] for e in events[2:-3]),
                         answer["content"][0]["text"])
        self.assertEqual(events[-2]["delta"]["stop_reason"], answer["stop_reason"])

    def test_messages_are_strict(self):
        message = {"role": "user", "content": "x"}
        for body in ({"messages": [message]}, {"messages": [], "max_tokens": 1},
                     {"messages": [message], "max_tokens": 0},
                     {"messages": [{"role": "system", "content": "x"}], "max_tokens": 1},
                     {"messages": [message], "max_tokens": 1, "tools": [{}]},
                     {"messages": [message], "max_tokens": 1, "thinking": {"type": "enabled"}},
                     {"messages": [message], "max_tokens": 1, "logprobs": True},
                     {"messages": [message], "max_tokens": 1, "system": [{"type": "image"}]},
                     {"messages": [message], "max_tokens": 1, "stop_sequences": [1]}):
            status, answer, _ = self.call("POST", "/v1/messages", body)
            self.assertEqual(status, 400, body)
            self.assertEqual(answer["type"], "error")
            self.assertEqual(answer["error"]["type"], "invalid_request_error")
        self.post("/v1/messages", {"messages": [message], "max_tokens": 1, "tools": [],
                                   "thinking": {"type": "disabled"}, "metadata": {"user_id": "x"},
                                   "system": [{"type": "text", "text": "a",
                                               "cache_control": {"type": "ephemeral"}}]})

    def test_count_tokens(self):
        counted = self.post("/v1/messages/count_tokens", {"messages": [{"role": "user",
                                                                        "content": "Hello"}]})
        self.assertEqual(counted["input_tokens"],
                         self.post(CHAT, chat())["usage"]["prompt_tokens"])

    def test_responses(self):
        body = {"input": "Hello", "max_output_tokens": 12, "temperature": 0}
        answer = self.post("/v1/responses", body)
        text = answer["output"][0]["content"][0]["text"]
        self.assertEqual(text, self.post(CHAT, chat())["choices"][0]["message"]["content"])
        events = [json.loads(e) for e in self.stream("/v1/responses", body)]
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        self.assertEqual("".join(e["delta"] for e in events
                                 if e["type"] == "response.output_text.delta"), text)
        self.assertEqual(events[-1]["response"]["output"][0]["content"][0]["text"], text)
        for wrong in ({}, {"input": []}, {"input": 5}, {"input": "x", "store": 1, "x": 1},
                      {"input": "x", "tools": [{}]}, {"input": "x", "max_output_tokens": 0},
                      {"input": "x", "previous_response_id": "y"},
                      {"input": "x", "text": {"format": {"type": "json_object"}}}):
            self.assertEqual(self.call("POST", "/v1/responses", wrong)[0], 400, wrong)

    def test_tokens_and_templates(self):
        self.assertEqual(self.post("/tokenize", {"content": "abc"})["tokens"], [97, 98, 99])
        self.assertEqual(self.post("/tokenize", {"content": "<|im_end|>"})["count"], 10)
        self.assertEqual(self.post("/tokenize", {"content": "<|im_end|>",
                                                 "parse_special": True})["tokens"], [258])
        self.assertEqual(self.post("/detokenize", {"tokens": [97, 98]})["content"], "ab")
        messages = [{"role": "user", "content": "Hello"}]
        prompt = self.post("/apply-template", {"messages": messages})["prompt"]
        self.assertEqual(prompt, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
        whole = self.post("/tokenize", {"messages": messages})
        self.assertEqual(whole["tokens"], self.post("/tokenize", {"content": prompt,
                                                                  "parse_special": True})["tokens"])
        for path, body in (("/tokenize", {}), ("/tokenize", {"content": 5}), ("/detokenize", {}),
                           ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": [999]}),
                           ("/apply-template", {}), ("/tokenize", {"content": "x", "y": 1})):
            self.assertEqual(self.call("POST", path, body)[0], 400, (path, body))


class Refusals(ServeTest):
    def refused(self, body, field, *words, path=CHAT):
        status, answer, _ = self.call("POST", path, body)
        self.assertEqual(status, 400, answer)
        error = answer["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["type"], "invalid_request_error")
        self.assertEqual(error["param"], field, error)
        for word in words:
            self.assertIn(word, error["message"])

    def test_fields_out_of_range_are_named(self):
        cases = (("temperature", -1), ("temperature", "hot"), ("top_p", 7), ("max_tokens", -5),
                 ("max_tokens", 0), ("max_tokens", 2**63), ("max_tokens", 2**70),
                 ("max_tokens", 1.5), ("n", 0), ("n", 10**6), ("n", 2**64), ("stop", [1, {}]),
                 ("stop", [""]), ("stop", ["x"] * 17), ("seed", -2), ("seed", 2**63), ("top_k", -2),
                 ("stream", "yes"), ("presence_penalty", 1e9), ("logit_bias", []),
                 ("logit_bias", {"x": 1}), ("top_logprobs", 21), ("min_p", 2),
                 ("max_completion_tokens", True))
        for name, value in cases:
            body = chat()
            if name == "max_completion_tokens":
                del body["max_tokens"]
            self.refused({**body, name: value}, name, name)
        self.refused(chat(top_logprobs=2), "top_logprobs", "logprobs")
        self.refused(chat(temprature=1), "temprature")
        self.refused(chat(max_completion_tokens=3), "max_tokens")
        self.refused(chat(logit_bias={"999999999": 5}), None, "logit_bias")
        self.refused(chat(stream_options={"include_usage": True}), "stream_options")
        self.refused(chat(stream=True, stream_options={"x": 1}), "stream_options.x")

    def test_what_is_not_there_yet_says_so(self):
        for name, value in (("tools", [{"type": "function"}]), ("tool_choice", "auto"),
                            ("response_format", {"type": "json_object"}),
                            ("audio", {"voice": "x"}), ("modalities", ["audio"])):
            self.refused(chat(**{name: value}), name, "not supported")
        image = [{"type": "image_url", "image_url": {"url": "x"}}]
        self.refused({"messages": [{"role": "user", "content": image}]}, "messages[0].content",
                     "image_url")
        self.refused({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "tools")

    def test_what_changes_nothing_is_accepted(self):
        self.post(CHAT, chat(user="me", metadata={"a": "b"}, store=False, tools=[],
                             tool_choice="none", response_format={"type": "text"}, stop=None,
                             service_tier="auto", parallel_tool_calls=True, logprobs=False))
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        one = self.post(CHAT, {**chat(), "messages": [{"role": "user", "content": parts}]})
        self.assertEqual(one["choices"], self.post(CHAT, chat("ab"))["choices"])

    def test_messages(self):
        self.refused({"model": "served"}, "messages")
        self.refused({"messages": "hi"}, "messages")
        self.refused({"messages": []}, "messages")
        self.refused({"messages": [5]}, "messages[0]")
        self.refused({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role", "king")
        self.refused({"messages": [{"role": "user"}]}, "messages[0].content")
        self.refused({"messages": [{"role": "user", "content": 5}]}, "messages[0].content")
        self.refused({"messages": [{"role": "user", "content": "x", "y": 1}]}, "messages[0].y")

    def test_prompts(self):
        for prompt in (None, 5, {}, [[]], [[1.5]], [{}], [], ["x"] * 17, [-1], [2**40]):
            status, answer, _ = self.call("POST", COMPLETE, {"prompt": prompt})
            self.assertEqual(status, 400, prompt)
            self.assertIn("prompt", answer["error"]["message"])
        self.refused({"prompt": "x", "echo": True}, "echo", path=COMPLETE)
        self.refused({"prompt": "x", "logprobs": 6}, "logprobs", path=COMPLETE)
        self.refused({"prompt": [300]}, "prompt", "300", path=COMPLETE)

    def test_too_long(self):
        status, answer, _ = self.call("POST", CHAT, chat("word " * 40000))
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["code"], "context_length_exceeded")
        self.assertIn("4096", answer["error"]["message"])
        status, answer, _ = self.call("POST", CHAT, chat(max_tokens=5000))
        self.assertEqual(status, 400)
        self.assertIn("5000", answer["error"]["message"])

    def test_bodies_that_are_no_request(self):
        bodies = (b"", b"{", b"[]", b"null", b"5", b"[" * 100000, b'{"a":' * 100000,
                  b'{"model":"\xff\xfe"}', b'{"messages":"\\ud800"}', b"{}\0", b"\0" * 1000,
                  b'{"max_tokens":1e999}', b'{"n":' + b"9" * 5000 + b"}")
        for body in bodies:
            status, answer, _ = self.call("POST", CHAT, raw=body)
            self.assertEqual(status, 400, body[:40])
            self.assertIn("message", answer["error"])
        body = b'{"messages":[{"role":"user","content":"a\\u0000b"}],"max_tokens":2}'
        self.assertEqual(self.call("POST", CHAT, raw=body)[0], 200)

    def test_models_and_paths(self):
        status, answer, _ = self.call("POST", CHAT, chat(model="gpt-9"))
        self.assertEqual(status, 404)
        self.assertEqual(answer["error"]["code"], "model_not_found")
        self.assertEqual(self.call("POST", CHAT, chat(model=5))[0], 400)
        self.assertEqual(self.call("GET", "/nowhere")[0], 404)
        self.assertEqual(self.call("GET", "/../../etc/passwd")[0], 404)
        self.assertEqual(self.call("GET", "/v1/models/../x")[0], 404)
        status, _, response = self.call("GET", CHAT)
        self.assertEqual((status, response.getheader("Allow")), (405, "POST"))
        self.assertEqual(self.call("POST", "/health", raw=b"{}")[0], 405)

    def test_hosts_and_origins(self):
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
            self.assertEqual(self.call("GET", "/health", headers={"Host": host})[0], 403, host)
        for host in ("localhost", "localhost:99", "LOCALHOST", "127.0.0.1:1", "[::1]:8080"):
            self.assertEqual(self.call("GET", "/health", headers={"Host": host})[0], 200, host)
        origin = {"Host": "localhost:1", "Origin": "http://evil.example"}
        self.assertEqual(self.call("POST", CHAT, chat(), headers=origin)[0], 403)
        origin["Origin"] = "http://localhost:1"
        self.assertEqual(self.call("POST", CHAT, chat(), headers=origin)[0], 200)


class Page(ServeTest):
    def test_the_page_and_what_it_loads(self):
        status, page, response = self.call("GET", "/")
        self.assertEqual(status, 200)
        self.assertEqual(response.getheader("Content-Type"), "text/html; charset=utf-8")
        self.assertIn("default-src 'none'", response.getheader("Content-Security-Policy"))
        for name in re.findall(r'(?:src|href)="([a-z.]+)"', page):
            status, text, response = self.call("GET", "/" + name)
            self.assertEqual(status, 200, name)
            self.assertGreater(len(text), 1000, name)
            self.assertIn(name.split(".")[1].replace("js", "javascript"),
                          response.getheader("Content-Type"))
        self.assertNotRegex(page, r"https?://")

    def test_heads_have_no_body(self):
        answer = self.read_all(self.socket(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n"
                                           b"Connection: close\r\n\r\n"))
        self.assertTrue(answer.endswith(b"\r\n\r\n"))


class Sockets(ServeTest):
    def status(self, data):
        connection = self.socket(data)
        answer = self.read_all(connection)
        found = re.match(rb"HTTP/1\.1 (\d+) ", answer)
        return int(found.group(1)) if found else None

    def test_what_is_no_http(self):
        for data in (b"hello\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
                     b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
                     b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
                     b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"
                     b"Content-Length: 2\r\n\r\n",
                     b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n",
                     b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                     b"GET / HTTP/1.1\r\n\r\n" + b"Connection: close\r\n\r\n"):
            self.assertIn(self.status(data), (400, None), data)
        self.assertEqual(self.status(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), 400)

    def test_floods_are_refused(self):
        flood = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: " + b"a" * 200000 + b"\r\n\r\n"
        self.assertEqual(self.status(flood), 431)
        many = b"".join(b"X-%d: y\r\n" % i for i in range(20000))
        flood = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + many + b"\r\n"
        self.assertEqual(self.status(flood), 431)
        self.assertEqual(self.status(request_bytes(b"x" * (9 << 20))), 413)
        self.assertEqual(self.status(b"POST / HTTP/1.1\r\nHost: a\r\n"
                                     b"Content-Length: 99999999999999999999\r\n\r\n"), 400)
        self.assertEqual(self.call("GET", "/health")[0], 200)

    def test_permission_to_send(self):
        head = request_bytes(chat(), extra="Expect: 100-continue\r\n")
        split = head.index(b"\r\n\r\n") + 4
        connection = self.socket(head[:split])
        self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(head[split:])
        self.assertIn(b"200 OK", connection.recv(100))

    def test_connections_are_kept(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        names = set()
        for _ in range(3):
            connection.request("POST", CHAT, json.dumps(chat()))
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
            names.add(connection.sock.getsockname())
        self.assertEqual(len(names), 1)
        connection.close()
        old = self.socket(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.assertIn(b"Connection: close", self.read_all(old))

    def test_pipelined_requests_are_answered_in_order(self):
        first = request_bytes({"prompt": "A", "max_tokens": 3, "logit_bias": {"65": 1000}},
                              COMPLETE)
        second = request_bytes({"prompt": "A", "max_tokens": 3, "logit_bias": {"66": 1000}},
                               COMPLETE, extra="Connection: close\r\n")
        answer = self.read_all(self.socket(first + second))
        self.assertEqual(re.findall(rb'"text":"(\w+)"', answer), [b"AAA", b"BBB"])

    def test_chunked_bodies(self):
        body = json.dumps({"prompt": "A", "max_tokens": 3, "logit_bias": {"65": 1000}}).encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7))
        answer = self.read_all(self.socket(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"))
        self.assertIn(b'"text":"AAA"', answer)

    def test_streams_to_old_clients_end_with_the_connection(self):
        body = json.dumps({"prompt": "A", "max_tokens": 3, "stream": True,
                           "logit_bias": {"65": 1000}})
        answer = self.read_all(self.socket(
            f"POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode())).decode()
        self.assertNotIn("Transfer-Encoding", answer)
        self.assertTrue(answer.endswith("data: [DONE]\n\n"), answer)

    def test_slow_clients_do_not_hold_up_others(self):
        slow = [self.socket(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
                for _ in range(64)]
        bodies = [self.socket(request_bytes(chat())[:-5]) for _ in range(16)]
        self.post(CHAT, chat())
        for connection in bodies:
            connection.sendall(request_bytes(chat())[-5:])
            self.assertIn(b"200 OK", connection.recv(100))
        for connection in slow:
            connection.close()

    def test_many_connections_make_room(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 2000:
            self.skipTest(f"the system gives {hard} descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
        held = [self.socket() for _ in range(1100)]
        self.post(CHAT, chat())
        for connection in held:
            connection.close()


class Cancel(ServeTest):
    options = ("--parallel", 4, "--queue", 4)
    context = ENDLESS_TOKENS + 1000

    def endless(self, **more):
        return {"prompt": "a", "max_tokens": ENDLESS_TOKENS, "logit_bias": END_TOKENS_BANNED,
                "temperature": 1, **more}

    def idle(self):
        return (self.metric("vllm:num_requests_running") == 0 and
                self.metric("vllm:num_requests_waiting") == 0)

    def test_clients_that_go_away_free_their_pages(self):
        for _ in range(3):
            clients = []
            for i in range(8):
                extra = {"stream": True} if i % 2 else {}
                clients.append(self.socket(request_bytes(self.endless(**extra), COMPLETE)))
            self.wait_until(lambda: self.metric("vllm:num_requests_running"), 4)
            for i, client in enumerate(clients):
                if i % 2:
                    client.recv(10)
                elif i % 4 == 2:  # half closed counts as gone
                    client.shutdown(socket.SHUT_WR)
                client.close()
            self.wait_until(self.idle)
        # Some requests may have come only after that.
        self.wait_until(lambda: self.metric("vllm:kv_cache_usage_perc"), 0)
        self.wait_until(self.idle)
        self.assertEqual(self.metric("kvikk:kv_slabs_leaked"), 0)

    def test_others_do_not_notice(self):
        body = {"prompt": "steady", "max_tokens": 300, "temperature": 0.9, "seed": 3,
                "logit_bias": END_TOKENS_BANNED}
        alone = self.post(COMPLETE, body)["choices"]
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            answer = threads.submit(self.post, COMPLETE, body)
            while not answer.done():
                client = self.socket(request_bytes(self.endless(stream=True), COMPLETE))
                client.recv(1)
                client.close()
            self.assertEqual(answer.result()["choices"], alone)
        self.wait_until(self.idle)

    def test_a_full_queue_says_when_to_come_back(self):
        clients = [self.socket(request_bytes(self.endless(), COMPLETE)) for _ in range(8)]
        self.wait_until(lambda: self.metric("vllm:num_requests_running") +
                        self.metric("vllm:num_requests_waiting"), 8)
        status, answer, response = self.call("POST", COMPLETE, {"prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["error"]["type"]), (429, "rate_limit_error"))
        self.assertEqual(response.getheader("Retry-After"), "1")
        self.assertEqual(self.call("GET", "/health")[0], 200)
        for client in clients:
            client.close()
        self.wait_until(
            lambda: self.call("POST", COMPLETE, {"prompt": "a", "max_tokens": 1})[0], 200)


class Keys(ServeTest):
    @classmethod
    def setUpClass(cls):
        ProgramTest.setUpClass.__func__(cls)
        cls.model = tiny_model(os.path.join(cls.folder, "served.gguf"), context=512)
        cls.holder = cls("run")
        keys = cls.holder.path("keys.txt", "# users\nsecret-one\n\nanna secret-two\n")
        cls.server, cls.port = cls.holder.serve("--api-key-file", keys)

    def test_nothing_but_health_answers_without(self):
        for method, path in (("GET", "/"), ("GET", "/v1/models"), ("GET", "/metrics"),
                             ("GET", "/v1/loads"), ("POST", CHAT), ("GET", "/nowhere")):
            body = chat() if method == "POST" else None
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"},
                            {"x-api-key": ""}, {"Authorization": "secret-one"},
                            {"Authorization": "Basic !!!!"}):
                self.assertEqual(self.call(method, path, body, headers=headers)[0], 401)
        self.assertEqual(self.call("GET", "/health")[0], 200)

    def test_each_way_to_show_a_key(self):
        for headers in ({"Authorization": "Bearer secret-one"}, {"x-api-key": "secret-two"},
                        {"authorization": "bearer secret-two"},
                        {"Authorization": "Basic eDpzZWNyZXQtb25l"}):  # x:secret-one
            self.assertEqual(self.call("POST", CHAT, chat(), headers=headers)[0], 200)

    def test_files_of_keys_that_are_wrong(self):
        for text in ("", "# none\n", "a b c\n", "x" * 600):
            result = self.kvikk("serve", "-m", self.model, "--port", 0, "--api-key-file",
                                self.path("wrong.txt", text))
            self.assert_failed(result, 2, "wrong.txt")


class Stopping(ServeTest):
    context = ENDLESS_TOKENS + 1000

    def long_answer(self, port, tokens=1500):
        body = {"prompt": "a", "max_tokens": tokens, "stream": True, "temperature": 1,
                "logit_bias": END_TOKENS_BANNED}
        client = self.socket(request_bytes(body, COMPLETE), port=port)
        self.assertIn(b"200 OK", client.recv(100))
        return client

    def test_signals_let_answers_end(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            server, port = self.serve()
            idle = self.socket(request_bytes(b"", "/health", "GET"), port=port)
            idle.recv(1000)
            client = self.long_answer(port)
            server.send_signal(number)
            self.assertTrue(self.read_all(client).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"))
            self.assertEqual(server.wait(SECONDS_MAX), 0)

    def test_a_second_signal_stops_at_once(self):
        server, port = self.serve()
        self.long_answer(port, tokens=ENDLESS_TOKENS)
        server.send_signal(signal.SIGINT)
        self.assertIn(b"stopping", server.stderr.readline())
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(SECONDS_MAX), 130)

    def test_the_time_to_drain_ends(self):
        server, port = self.serve("--drain-seconds", 0)
        client = self.long_answer(port, tokens=ENDLESS_TOKENS)
        server.send_signal(signal.SIGTERM)
        self.read_all(client)
        self.assertEqual(server.wait(SECONDS_MAX), 0)

    def test_a_port_in_use(self):
        result = self.kvikk("serve", "-m", self.model, "--port", self.port)
        self.assert_failed(result, 1, str(self.port), "in use")

    def test_requests_that_take_too_long(self):
        _, port = self.serve("--request-seconds", 1)
        body = {"prompt": "a", "max_tokens": ENDLESS_TOKENS, "logit_bias": END_TOKENS_BANNED}
        status, answer, _ = self.call("POST", COMPLETE, body, port=port)
        self.assertEqual((status, answer["error"]["code"]), (504, "deadline_exceeded"))
        events = self.stream(COMPLETE, body, port=port)
        self.assertEqual(json.loads(events[-1])["error"]["code"], "deadline_exceeded")
        self.post(COMPLETE, {"prompt": "a", "max_tokens": 1}, port=port)

    def test_logs_have_no_text(self):
        server, port = self.serve("--log-requests")
        self.post(CHAT, chat("a secret question"), port=port)
        line = server.stderr.readline().decode()
        entry = json.loads(line)
        self.assertEqual((entry["path"], entry["status"]), (CHAT, 200))
        self.assertGreater(entry["prompt_tokens"], 0)
        self.assertNotIn("secret", line)


if __name__ == "__main__":
    unittest.main()
