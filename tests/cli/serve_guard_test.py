"""kvikk serve's repetition guard: answers that go round in circles end or are tried again."""

import json
import re
import unittest

from serve_test import CHAT, COMPLETE, ServeTest, chat

A, B, DASH = 97, 98, 45
CIRCLE = re.compile(r"(.)\1\1\1")


def only(*tokens):
    """Nothing else can be drawn; of two, either, where it is hot enough."""
    return {str(token): 1000 for token in tokens}


class Guard(ServeTest):
    def test_it_is_off_unless_asked_for(self):
        choice = self.post(CHAT, chat(logit_bias=only(A)))["choices"][0]
        self.assertEqual(choice["message"]["content"], "a" * 12)
        self.assertNotIn("repetition_guard", choice)

    def test_stop(self):
        answer = self.post(CHAT, chat(logit_bias=only(A), repetition_guard="stop"))
        choice = answer["choices"][0]
        self.assertEqual(choice["message"]["content"], "aaa")
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(choice["repetition_guard"], {"stopped": True, "retries": 0})
        self.assertEqual(answer["usage"]["completion_tokens"], 3)

    def test_fillers_may_go_on(self):
        body = chat(logit_bias=only(DASH), repetition_guard="stop", max_tokens=70)
        self.assertEqual(self.post(CHAT, body)["choices"][0]["message"]["content"], "-" * 63)
        body["max_tokens"] = 60
        choice = self.post(CHAT, body)["choices"][0]
        self.assertEqual((choice["finish_reason"], len(choice["message"]["content"])),
                         ("length", 60))
        self.assertNotIn("repetition_guard", choice)

    def test_what_was_streamed_stays(self):
        for guard in ("stop", "retry"):
            events = [json.loads(e) for e in self.stream(CHAT, chat(
                logit_bias=only(A), repetition_guard=guard, temperature=1))[:-1]]
            text = "".join(e["choices"][0]["delta"].get("content", "") for e in events)
            self.assertEqual(text, "aaa")
            last = events[-1]["choices"][0]
            self.assertEqual(last["finish_reason"], "stop")
            self.assertEqual(last["repetition_guard"], {"stopped": True, "retries": 0})

    def test_retry(self):
        """Of 8 tokens, each of two, 4 in a row are the same in every second answer or so."""
        kept = again = given_up = 0
        for seed in range(16):
            body = {"prompt": "x", "max_tokens": 8, "temperature": 30, "top_k": 0, "top_p": 1,
                    "min_p": 0, "seed": seed, "logit_bias": only(A, B)}
            plain = self.post(COMPLETE, body)["choices"][0]["text"]
            choice = self.post(COMPLETE, {**body, "repetition_guard": "retry"})["choices"][0]
            said = choice.get("repetition_guard", {"stopped": False, "retries": 0})
            self.assertIsNone(CIRCLE.search(choice["text"]))
            if CIRCLE.search(plain) is None:
                self.assertEqual(choice["text"], plain)
                self.assertEqual(said["retries"], 0)
                kept += 1
            elif said["stopped"]:
                self.assertEqual(said["retries"], 2)
                self.assertLess(len(choice["text"]), 8)
                given_up += 1
            else:
                self.assertIn(said["retries"], (1, 2))
                self.assertEqual(len(choice["text"]), 8)
                again += 1
            same = self.post(COMPLETE, {**body, "repetition_guard": "retry"})["choices"][0]
            self.assertEqual(same, choice)
        self.assertGreater(kept, 0)
        self.assertGreater(again, 0)
        self.assertGreaterEqual(self.metric("kvikk:repetition_retries_total"), again)

    def test_greedy_answers_are_not_tried_again(self):
        body = {"prompt": "x", "max_tokens": 8, "temperature": 0, "logit_bias": only(A),
                "repetition_guard": "retry"}
        choice = self.post(COMPLETE, body)["choices"][0]
        self.assertEqual(choice["repetition_guard"], {"stopped": True, "retries": 0})

    def test_every_choice_has_its_own(self):
        body = {"prompt": ["x", "y"], "max_tokens": 6, "logit_bias": only(A), "n": 2,
                "repetition_guard": "retry"}
        choices = self.post(COMPLETE, body)["choices"]
        self.assertEqual([c["text"] for c in choices], ["aaa"] * 4)
        self.assertEqual([c["repetition_guard"] for c in choices],
                         [{"stopped": True, "retries": 2}] * 4)

    def test_other_apis(self):
        answer = self.post("/v1/messages", chat(logit_bias=only(A), repetition_guard="stop"))
        self.assertEqual(answer["content"][0]["text"], "aaa")
        self.assertEqual(answer["stop_reason"], "end_turn")
        self.assertTrue(answer["repetition_guard"]["stopped"])
        answer = self.post("/v1/responses", {"input": "Hi", "logit_bias": only(A),
                                             "max_output_tokens": 9, "repetition_guard": "stop"})
        self.assertEqual(answer["output"][0]["content"][0]["text"], "aaa")
        self.assertEqual(answer["status"], "completed")
        self.assertTrue(answer["repetition_guard"]["stopped"])

    def test_wrong_values(self):
        status, answer, _ = self.call("POST", CHAT, chat(repetition_guard="on"))
        self.assertEqual((status, answer["error"]["param"]), (400, "repetition_guard"))
        self.assert_failed(self.kvikk("serve", "-m", self.model, "--repetition-guard", "on"), 2,
                           "'on'", "retry")

    def test_the_option_is_the_default(self):
        _, port = self.serve("--repetition-guard", "stop")
        body = chat(logit_bias=only(A))
        self.assertEqual(self.post(CHAT, body, port=port)["usage"]["completion_tokens"], 3)
        body["repetition_guard"] = "off"
        self.assertEqual(self.post(CHAT, body, port=port)["usage"]["completion_tokens"], 12)


if __name__ == "__main__":
    unittest.main()
