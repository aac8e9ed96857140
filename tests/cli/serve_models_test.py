"""kvikk serve with several models: which one answers, how they come and go, what they take."""

import concurrent.futures
import json
import os
import unittest

from program import END_TOKENS_BANNED, MODELS
from serve_test import CHAT, COMPLETE, ServeTest, chat, request_bytes
from tiny_model import tiny_model

BODY = {"prompt": "Once", "max_tokens": 12, "temperature": 0}


class ModelsTest(ServeTest):
    """Serves b and c beside the first model."""

    context = 2048

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.others = [tiny_model(os.path.join(cls.folder, f"{name}.gguf"), seed=seed,
                                 context=2048)
                      for seed, name in ((7, "b"), (8, "c"))]

    def serve_all(self, *options):
        more = [word for path in self.others for word in ("-m", path)]
        return self.serve(*more, *options)

    def loaded(self, port):
        return [m["id"] for m in self.call("GET", "/v1/models", port=port)[1]["data"]
                if m["loaded"]]


class Several(ModelsTest):
    def test_a_model_without_a_template_does_not_tell_where_it_is(self):
        base = tiny_model(os.path.join(self.folder, "base.gguf"), template=None)
        _, port = self.serve(model=base)
        status, answer = self.call("POST", CHAT, chat(model="base"), port=port)[:2]
        self.assertEqual(status, 400)
        self.assertIn("no chat template; /v1/completions", json.dumps(answer))
        self.assertNotIn(self.folder, json.dumps(answer))

    def test_an_encoder_is_refused_at_once(self):
        encoder = os.path.join(MODELS, "bert")
        result = self.kvikk("serve", "-m", self.model, "-m", encoder)
        self.assert_failed(result, 1, "bert", "encoder", "kvikk embed")

    def test_each_answers_as_itself(self):
        _, port = self.serve_all("--alias", "favourite")
        models = self.call("GET", "/v1/models", port=port)[1]["data"]
        self.assertEqual([m["id"] for m in models], ["served", "favourite", "b", "c"])
        self.assertEqual(self.loaded(port), ["served", "favourite"])
        answers = {}
        for name in ("served", "favourite", "b", "c", None):
            body = {k: v for k, v in {**BODY, "model": name}.items() if v is not None}
            answer = self.post(COMPLETE, body, port=port)
            answers[name] = answer["choices"][0]["text"]
            self.assertEqual(answer["model"], {"favourite": "served"}.get(name, name or "served"))
        self.assertEqual(answers["favourite"], answers["served"])
        self.assertEqual(answers[None], answers["served"])
        self.assertEqual(len({answers["served"], answers["b"], answers["c"]}), 3)
        for name, path in (("served", self.model), ("b", self.others[0])):
            result = self.kvikk("eval", "batch", "-m", path, "--requests", self.path(
                "request.jsonl", json.dumps(BODY) + "\n"), "--out", self.path("answer.jsonl"))
            self.assertEqual(result.code, 0, result.error)
            with open(self.path("answer.jsonl"), encoding="utf-8") as file:
                self.assertEqual(json.load(file)["text"], answers[name])
        self.assertEqual(self.loaded(port), ["served", "favourite", "b", "c"])
        one = self.call("GET", "/v1/models/b", port=port)[1]
        self.assertEqual((one["id"], one["max_model_len"]), ("b", 2048))
        self.assertEqual(self.call("GET", "/v1/models/d", port=port)[0], 404)

    def test_models_that_are_not_there(self):
        _, port = self.serve_all()
        status, answer, _ = self.call("POST", CHAT, chat(model="gpt-9"), port=port)
        self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"))
        self.assertIn("'b'", answer["error"]["message"])
        status, answer, _ = self.call("POST", "/v1/messages", chat(model="other-9"), port=port)
        self.assertEqual((status, answer["error"]["type"]), (404, "not_found_error"))
        self.assertEqual(self.call("POST", "/tokenize", {"content": "a", "model": "d"},
                                   port=port)[0], 404)

    def test_every_endpoint_loads(self):
        _, port = self.serve_all()
        tokens = self.post("/tokenize", {"content": "ab", "model": "b"}, port=port)
        self.assertEqual(tokens["count"], 2)
        self.assertIn("b", self.loaded(port))
        self.post("/v1/messages", chat(model="c"), port=port)
        self.assertIn("c", self.loaded(port))

    def test_figures_name_the_model(self):
        _, port = self.serve_all()
        self.post(COMPLETE, {**BODY, "model": "b"}, port=port)
        text = self.call("GET", "/metrics", port=port)[1]
        self.assertIn('vllm:request_success_total{finished_reason="length",model_name="b"} 1', text)
        for name, loads in (("served", 1), ("b", 1), ("c", 0)):
            self.assertIn(f'kvikk:model_loads_total{{model_name="{name}"}} {loads}', text)
            self.assertIn(f'kvikk:model_loaded{{model_name="{name}"}} {loads}', text)
        loads = self.call("GET", "/v1/loads", port=port)[1]
        self.assertEqual([m["model"] for m in loads["models"]], ["served", "b", "c"])
        self.assertEqual(sum(m["decode_rows_total"] for m in loads["models"]),
                         loads["decode_rows_total"])

    def test_a_damaged_model_fails_alone(self):
        path = os.path.join(self.folder, "short.gguf")
        with open(self.others[0], "rb") as file:
            data = bytearray(file.read())
        data[-64:] = b"\xff" * 64  # NaN among the weights, which only loading sees
        self.path("short.gguf", bytes(data))
        _, port = self.serve("-m", path)
        status, answer, _ = self.call("POST", COMPLETE, {**BODY, "model": "short"}, port=port)
        self.assertEqual((status, answer["error"]["code"]), (500, "model_not_loaded"))
        self.assertNotIn(self.folder, answer["error"]["message"])
        self.post(COMPLETE, BODY, port=port)

    def test_options_that_cannot_be(self):
        result = self.kvikk("serve", "-m", self.model, "-m", self.model)
        self.assert_failed(result, 2, "'served'")
        result = self.kvikk("serve", "-m", self.model, "-m", self.path("none.gguf"))
        self.assert_failed(result, 1, "none.gguf")


class Memory(ModelsTest):
    def test_only_one_fits(self):
        """Many clients of three models, of which one fits: all are answered, and as ever."""
        _, roomy = self.serve_all()
        _, port = self.serve_all("--memory-mib", 1)
        bodies = [{"prompt": f"Client {i}", "max_tokens": 10, "temperature": 1, "seed": i,
                   "model": ("served", "b", "c")[i % 3]} for i in range(18)]
        wanted = [self.post(COMPLETE, b, port=roomy)["choices"] for b in bodies]
        with concurrent.futures.ThreadPoolExecutor(18) as threads:
            got = list(threads.map(lambda b: self.post(COMPLETE, b, port=port)["choices"], bodies))
        self.assertEqual(got, wanted)
        self.assertEqual(len(self.loaded(port)), 1)
        self.assertGreaterEqual(self.metric("kvikk:model_loads_total", port), 3)

    def test_idle_models_go(self):
        _, port = self.serve_all("--keep-alive", 1)
        self.post(COMPLETE, {**BODY, "model": "b"}, port=port)
        self.wait_until(lambda: self.loaded(port), [])
        self.assertEqual(self.metric("kvikk:model_memory_bytes", port), 0)
        self.post(COMPLETE, {**BODY, "model": "b"}, port=port)

    def test_clients_that_leave_while_a_model_is_loaded(self):
        _, port = self.serve_all()
        body = {"prompt": "a", "max_tokens": 1900, "logit_bias": END_TOKENS_BANNED, "model": "c"}
        for _ in range(4):
            self.socket(request_bytes(body, COMPLETE), port=port).close()
        self.post(COMPLETE, {**BODY, "model": "c"}, port=port)
        self.wait_until(lambda: self.metric("vllm:num_requests_running", port), 0)
        self.assertEqual(self.metric("kvikk:kv_slabs_leaked", port), 0)


if __name__ == "__main__":
    unittest.main()
