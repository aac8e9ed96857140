#!/usr/bin/env python3
"""Makes language.jsonl and conversations.jsonl: what Jinja2 renders, with the settings of the
reference tokenizer library, for the snippets in snippets.txt and for random conversations through
every template of this folder. Needs the package jinja2 (3.1).

usage: make_expected.py        rewrites both files"""
import datetime
import glob
import json
import os
import random

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = "2026-01-02T03:04:05"


class Generation(Extension):
    """{% generation %}: marks what the assistant says; renders as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _render(self, context, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


ENV = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                    extensions=[Generation, loopcontrols])
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = lambda format: datetime.datetime.fromisoformat(NOW).strftime(format)


def expected(source, variables):
    values = {"tools": None, "documents": None, "add_generation_prompt": False, **variables}
    try:
        return {"text": ENV.from_string(source).render(**values)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


# --- snippets ---------------------------------------------------------------------------------------
VARIABLES = {
    "messages": [
        {"role": "system", "content": "Sys é"},
        {"role": "user", "content": "Hi <b>\n there"},
        {"role": "assistant", "content": "<think>x</think>\n\nYes",
         "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1.5, "b": None}}}]},
        {"role": "user", "content": "2"}],
    "bos_token": "<s>", "eos_token": "</s>"}


def snippets():
    """Each paragraph of snippets.txt is a template; a line of an 'expressions' paragraph is one."""
    text = open(os.path.join(HERE, "snippets.txt"), encoding="utf-8").read()
    expressions, statements = text.split("\n==== statements ====\n")
    for line in expressions.split("\n"):
        if line and not line.startswith("# "):
            yield "{{ " + line.replace("⏎", "\n") + " }}"
    rows = statements.rstrip("\n").split("\n")
    for row in rows:
        yield row.replace("⏎", "\n")
    for i in range(0, len(rows) - 2, 3):  # white space between blocks
        yield "\n".join(rows[i:i + 3]).replace("⏎", "\n") + "\n"


# --- conversations ----------------------------------------------------------------------------------
R = random.Random(7)
TEXTS = ["Hello!", "", "  two  spaces ", "\n line\n\n\ttab ", "é 漢字 🙂 </s>", "<think>hm\n</think>\n\nanswer",
         "/no_think", "it's \"q\" \\ & <b>", "<tool_response>r</tool_response>", "a\r\nb"]


def scalar():
    return R.choice(["x", "é", 0, -5, 3.5, True, None, "multi\nline", [], {}, [1, "a"], {"k": "v"}])


def schema(depth=0):
    kind = R.choice(["string", "number", "boolean", "array", "object"])
    out = {"type": kind}
    if R.random() < .6:
        out["description"] = R.choice(TEXTS)
    if R.random() < .2:
        out["enum"] = R.choice([["c", "f"], [1, 2]])
    if kind == "array" and depth < 2:
        out["items"] = schema(depth + 1)
    if kind == "object" and depth < 2:
        out["properties"] = {k: schema(depth + 1) for k in R.sample(["p", "q", "items"], 2)}
    return out


def tool():
    names = R.sample(["city", "unit", "a", "items"], R.randint(0, 3))
    return {"type": "function", "function": {
        "name": R.choice(["get_weather", "add"]), "description": R.choice(TEXTS),
        "parameters": {"type": "object", "properties": {k: schema() for k in names}, "required": names[:1]}}}


def content():
    if R.random() < .85:
        return R.choice(TEXTS)
    return [{"type": "text", "text": R.choice(TEXTS)}, R.choice([{"type": "image"}, {"type": "text", "text": "t"}])]


def conversation():
    messages = [{"role": "system", "content": R.choice(TEXTS)}] if R.random() < .5 else []
    for _ in range(R.randint(1, 3)):
        messages.append({"role": "user", "content": content()})
        answer = {"role": "assistant", "content": content()}
        if R.random() < .3:
            answer["reasoning_content"] = R.choice(TEXTS)
        if R.random() < .4:
            arguments = {k: scalar() for k in R.sample(["city", "unit", "a"], R.randint(0, 2))}
            answer["tool_calls"] = [{"id": "123456789", "type": "function",
                                     "function": {"name": "add", "arguments": arguments}}]
            messages += [answer, {"role": "tool", "tool_call_id": "123456789", "name": "add",
                                  "content": R.choice(TEXTS)}]
            answer = {"role": "assistant", "content": R.choice(TEXTS)}
        messages.append(answer)
    if R.random() < .7:
        messages.append({"role": "user", "content": R.choice(TEXTS)})
    out = {"messages": messages, "add_generation_prompt": R.random() < .7,
           "bos_token": "<s>", "eos_token": "</s>"}
    if R.random() < .5:
        out["tools"] = [tool() for _ in range(R.randint(1, 2))]
    for key, values in (("enable_thinking", [True, False]), ("reasoning_effort", ["low", "high"]),
                        ("documents", [[{"title": "t", "text": "d"}]])):
        if R.random() < .3:
            out[key] = R.choice(values)
    return out


def write(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False) + "\n")


def main():
    language = []
    for source in dict.fromkeys(snippets()):
        row = {"source": source, **expected(source, VARIABLES)}
        if " at 0x" not in row.get("text", ""):
            language.append(row)
    write("language.jsonl", [{"variables": VARIABLES, "now": NOW}] + language)
    rows = []
    for _ in range(8):
        variables = conversation()
        templates = {}
        for path in sorted(glob.glob(os.path.join(HERE, "*.jinja"))):
            source = open(path, encoding="utf-8", newline="").read()
            templates[os.path.basename(path)] = expected(source, variables)
        rows.append({"variables": variables, "now": NOW, "templates": templates})
    write("conversations.jsonl", rows)


if __name__ == "__main__":
    main()
