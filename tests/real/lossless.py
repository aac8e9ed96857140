"""Guessing ahead changes no byte: the requests of bench/spec_prompts.jsonl, one of each kind of
work, greedy and drawn, with each drafter and without."""

import json
import os

from catalog import ROOT, batch


def requests(tokens):
    rows = []
    with open(os.path.join(ROOT, "bench", "spec_prompts.jsonl"), encoding="utf-8") as file:
        for i, line in enumerate(file):
            row = json.loads(line)
            row.update(id=row.pop("category"), max_tokens=tokens)
            row["temperature"] = 0.8 * (i % 2)
            row["seed"] = i
            rows.append(row)
    return rows


def check(test, model, drafters, tokens, timeout=300):
    """Exact and coded cache; one at a time and side by side."""
    rows = requests(tokens)
    wrong = 0
    for kv in ("bf16", "turbo4"):
        plain, _ = batch(model, rows, "--kv", kv, "--concurrency", 1, "--spec", "none",
                         timeout=timeout)
        for i, drafter in enumerate(drafters):
            # A fixed length guesses in every step; without, measurement decides.
            for concurrency, length in ((1, (6, 0)[i % 2]), (4, (0, 3)[i % 2])):
                said, figures = batch(model, rows, "--kv", kv, "--concurrency", concurrency,
                                      "--spec", drafter, "--draft", length, timeout=timeout)
                setting = (model, kv, drafter, concurrency, length)
                for got, want in zip(said, plain):
                    test.assertEqual(got["tokens"], want["tokens"], (*setting, want["id"]))
                    test.assertEqual(got["text"], want["text"], (*setting, want["id"]))
                test.assertEqual(len(said), len(plain))
                if length > 0:
                    test.assertGreater(figures["accepted_tokens"], 0, setting)
                    wrong += figures["drafted_tokens"] - figures["accepted_tokens"]
    # Without a wrong guess, nothing was taken back and nothing is shown.
    test.assertGreater(wrong, 0, model)
