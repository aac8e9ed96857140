"""kvikk serve, asked by the clients that people use: the Python packages openai and anthropic, in
their current versions. They are fetched by pip into the build folder once; without a network and
without them the tests are skipped."""

import unittest

from pip_packages import fetch
from program import END_TOKENS_BANNED
from serve_test import ServeTest

MISSING = fetch("clients", "openai", "anthropic")
USER = [{"role": "user", "content": "Name three colours."}]


@unittest.skipIf(MISSING, MISSING)
class OpenAiClient(ServeTest):
    def setUp(self):
        import openai
        self.openai = openai
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none",
                                    max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, **more):
        return self.client.chat.completions.create(
            **{"model": "served", "messages": USER, "max_tokens": 16, "temperature": 0, **more})

    def test_chat(self):
        answer = self.chat()
        text = answer.choices[0].message.content
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)
        events = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.delta.content or "" for e in events for c in e.choices), text)
        self.assertEqual(events[-1].usage.completion_tokens, answer.usage.completion_tokens)
        with self.client.chat.completions.stream(model="served", messages=USER, max_tokens=16,
                                                 temperature=0) as stream:
            self.assertEqual("".join(e.delta for e in stream if e.type == "content.delta"), text)

    def test_choices_and_logprobs(self):
        answer = self.chat(n=2, temperature=1, seed=4, logprobs=True, top_logprobs=2, max_tokens=4)
        self.assertEqual(len(answer.choices), 2)
        for entry in answer.choices[0].logprobs.content:
            self.assertEqual(len(entry.top_logprobs), 2)
            self.assertLessEqual(entry.logprob, 0)

    def test_completions(self):
        answer = self.client.completions.create(model="served", prompt="abc", max_tokens=5,
                                                temperature=0, logprobs=1)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), answer.usage.completion_tokens)
        parts = self.client.completions.create(model="served", prompt="abc", max_tokens=5,
                                               temperature=0, stream=True)
        self.assertEqual("".join(p.choices[0].text for p in parts), answer.choices[0].text)

    def test_responses(self):
        answer = self.client.responses.create(model="served", input="Hello", max_output_tokens=16,
                                              instructions="Be brief.", temperature=0,
                                              metadata={"a": "b"})
        self.assertGreater(len(answer.output_text), 0)
        self.assertIn(answer.status, ("completed", "incomplete"))
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.input_tokens + answer.usage.output_tokens)
        listed = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
        again = self.client.responses.create(model="served", input=listed, max_output_tokens=16,
                                             instructions="Be brief.", temperature=0)
        self.assertEqual(again.output_text, answer.output_text)
        with self.client.responses.stream(model="served", input="Hello", max_output_tokens=16,
                                          instructions="Be brief.", temperature=0) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response() if answer.status == "completed" else None
        self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
        self.assertEqual(kinds[-1], f"response.{answer.status}")
        if final is not None:
            self.assertEqual(final.output_text, answer.output_text)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["served"])
        self.assertEqual(self.client.models.retrieve("served").id, "served")

    def test_errors_have_their_types(self):
        with self.assertRaises(self.openai.BadRequestError) as raised:
            self.chat(temperature=-1)
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(self.openai.NotFoundError) as raised:
            self.chat(model="gpt-9")
        self.assertEqual(raised.exception.code, "model_not_found")
        with self.assertRaises(self.openai.BadRequestError):
            self.client.responses.create(model="served", input="x", previous_response_id="resp_1")

    def test_a_client_that_stops_reading(self):
        with self.chat(stream=True, max_tokens=3000, temperature=1,
                       logit_bias=END_TOKENS_BANNED) as stream:
            next(iter(stream))
        self.wait_until(lambda: self.metric("vllm:num_requests_running"), 0)


@unittest.skipIf(MISSING, MISSING)
class AnthropicClient(ServeTest):
    def setUp(self):
        import anthropic
        self.anthropic = anthropic
        self.client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.port}", api_key="none",
                                          max_retries=0)
        self.addCleanup(self.client.close)

    def message(self, **more):
        return self.client.messages.create(**{"model": "served", "messages": USER,
                                              "max_tokens": 16, "extra_body": {"temperature": 0},
                                              **more})

    def test_messages(self):
        answer = self.message(system="Be brief.")
        self.assertEqual((answer.type, answer.role), ("message", "assistant"))
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(answer.usage.output_tokens, 0)
        with self.client.messages.stream(model="served", messages=USER, max_tokens=16,
                                         system="Be brief.",
                                         extra_body={"temperature": 0}) as stream:
            self.assertEqual("".join(stream.text_stream), answer.content[0].text)
            final = stream.get_final_message()
        self.assertEqual(final.stop_reason, answer.stop_reason)
        self.assertEqual(final.usage.output_tokens, answer.usage.output_tokens)

    def test_stop_sequences(self):
        answer = self.message(stop_sequences=["x", "BBB"],
                              extra_body={"logit_bias": {"66": 1000}})
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", "BBB"))

    def test_the_answer_can_be_begun(self):
        begun = self.message(messages=[*USER, {"role": "assistant", "content": "Red"}])
        plain = self.message()
        self.assertGreater(begun.usage.input_tokens + begun.usage.cache_read_input_tokens,
                           plain.usage.input_tokens + plain.usage.cache_read_input_tokens)

    def test_count_tokens(self):
        count = self.client.messages.count_tokens(model="served", messages=USER)
        usage = self.message().usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_have_their_types(self):
        for more, kind in (({"model": "other"}, self.anthropic.NotFoundError),
                           ({"extra_body": {"temprature": 1}}, self.anthropic.BadRequestError),
                           ({"messages": [{"role": "system", "content": "x"}]},
                            self.anthropic.BadRequestError)):
            with self.assertRaises(kind) as raised:
                self.message(**more)
            self.assertEqual(raised.exception.body["type"], "error")


if __name__ == "__main__":
    unittest.main()
