"""The chat page in a real browser: Chromium, where it is installed, driven by Playwright, which pip
fetches once; skipped where one of them is missing."""

import json
import shutil
import unittest

from pip_packages import fetch
from program import END_TOKENS_BANNED
from serve_test import ServeTest

CHROMIUM = shutil.which("chromium")
MISSING = fetch("browser", "playwright") if CHROMIUM else "Chromium is not installed"
WAIT_MS = 120000

HOSTILE = r"""# Title

**bold** <script>window.hit = 1</script> <img src=x onerror="window.hit = 2">
<a href="javascript:window.hit=3">link</a> <iframe src="data:text/html,x"></iframe>
<style>body { display: none }</style> <form action="http://evil.example"><input></form>
[good](https://example.org) ![i](http://evil.example/x.png) <div onclick="window.hit=4">d</div>

```python
print("hi")
```

| a | b |
|---|---|
| 1 | 2 |

It costs $5 and $6. Euler: $e^{i\pi} + 1 = 0$, \(x_1\), `$no$`.

$$
\sum_{i=1}^n i
= \frac{n(n+1)}{2}
$$

\[ \href{javascript:window.hit=5}{y} \undefined \]
"""


@unittest.skipIf(MISSING, MISSING)
class Page(ServeTest):
    def setUp(self):
        from playwright.sync_api import sync_playwright
        playwright = sync_playwright().start()
        self.addCleanup(playwright.stop)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.addCleanup(browser.close)
        self.page = browser.new_page(viewport={"width": 1100, "height": 800})
        self.page.set_default_timeout(WAIT_MS)
        self.errors, self.foreign = [], []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: None if f":{self.port}/" in request.url or
                     request.url.startswith("data:") else self.foreign.append(request.url))
        self.open()

    def tearDown(self):
        self.assertEqual(self.errors, [])
        self.assertEqual(self.foreign, [])

    def open(self):
        self.page.goto(f"http://127.0.0.1:{self.port}/")
        self.page.wait_for_selector("#model:text-is('served')")

    def ask(self, text):
        self.page.fill("#input", text)
        self.page.keyboard.press("Enter")
        self.answered()

    def answered(self):
        self.page.wait_for_selector("#send:not([hidden])")
        self.page.wait_for_selector(".message.assistant .tools:has-text('tokens/s')")

    def set(self, name, value):
        self.page.eval_on_selector(f"[name={name}]", """(field, value) => {
            field.value = value; field.dispatchEvent(new Event("input")); }""", str(value))

    def stored(self):
        return json.loads(self.page.evaluate("localStorage.getItem('kvikk.conversations')"))

    def test_talking(self):
        self.set("temperature", 0)
        self.set("max_tokens", 8)
        self.ask("Hello")
        wanted = self.post("/v1/chat/completions",
                           {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8,
                            "temperature": 0})["choices"][0]["message"]["content"]
        self.assertEqual(self.stored()[0]["root"]["children"][0]["children"][0]["content"], wanted)
        self.page.click("text=Regenerate")  # a second version beside the first
        self.page.wait_for_selector("text=2/2")
        self.answered()
        self.page.click("[title='Earlier version']")
        self.page.wait_for_selector("text=1/2")
        self.page.click("text=Edit")
        self.page.fill("[aria-label='Edited message']", "Hello again")
        self.page.click(".message.user >> text=Send")
        self.page.wait_for_selector(".message.user >> text=2/2")
        self.answered()
        self.open()  # everything is still there
        self.assertIn("Hello again", self.page.inner_text("#messages"))
        self.page.click("[aria-label='Delete Hello']")
        self.assertEqual(self.stored(), [])

    def test_stopping(self):
        self.page.route("**/v1/chat/completions", lambda route: route.continue_(
            post_data=json.dumps({**json.loads(route.request.post_data),
                                  "logit_bias": END_TOKENS_BANNED})))
        self.set("max_tokens", 4000)
        self.page.fill("#input", "Hello")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#stop:not([hidden])")
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector("#send:not([hidden])")
        self.wait_until(lambda: self.metric("vllm:num_requests_running"), 0)

    def test_what_a_model_writes_does_nothing(self):
        answer = {"role": "assistant", "content": HOSTILE, "children": [], "chosen": 0}
        question = {"role": "user", "content": "<b>x</b>", "children": [answer], "chosen": 0}
        root = {"role": "root", "content": "", "children": [question], "chosen": 0}
        self.page.evaluate("value => localStorage.setItem('kvikk.conversations', value)",
                           json.dumps([{"title": "x", "root": root}]))
        self.open()
        text = self.page.locator(".message.assistant > .text")
        self.assertEqual(text.locator("h1").inner_text(), "Title")
        self.assertEqual(text.locator("td").all_inner_texts(), ["1", "2"])
        self.assertIn("print(", text.locator("pre code").inner_text())
        self.assertEqual(text.locator("pre .copy").count(), 1)
        self.assertEqual(text.locator("pre .hljs-string").inner_text(), '"hi"')
        self.assertEqual(text.locator(".math:not(.display) .katex").count(), 2)
        self.assertEqual(text.locator(".math.display .katex-display").count(), 2)
        self.assertIn("$5 and $6", text.inner_text())
        self.assertEqual(text.locator("code", has_text="$no$").count(), 1)
        # Not wait_for_function: the page lets nobody evaluate a text as a script.
        self.wait_until(lambda: self.page.evaluate("document.fonts.check('16px KaTeX_Main')"))
        for bad in ("script", "img", "iframe", "style", "form", "input", "[onclick]", "[onerror]",
                    "a[href^=javascript]"):
            self.assertEqual(text.locator(bad).count(), 0, bad)
        self.assertEqual(text.locator("a[href='https://example.org']").get_attribute("rel"),
                         "noopener noreferrer")
        self.assertEqual(self.page.locator(".message.user .text").inner_text(), "<b>x</b>")
        self.assertIsNone(self.page.evaluate("window.hit ?? null"))

    def test_code_can_be_read(self):
        """WCAG AA: every colour of code has a contrast of 4.5 to what is behind it."""
        for name in ("light", "dark"):
            low = self.page.evaluate("""(name) => {
              document.documentElement.setAttribute("data-theme", name);
              const style = getComputedStyle(document.documentElement);
              const light = (colour) => {
                const of = (i) => {
                  const digits = style.getPropertyValue(colour).trim().slice(i, i + 2);
                  const v = parseInt(digits, 16) / 255;
                  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
                };
                return 0.2126 * of(1) + 0.7152 * of(3) + 0.0722 * of(5);
              };
              return ["--ink", "--faint", "--keyword", "--string", "--number", "--title", "--bad"]
                .filter((colour) => {
                  const [a, b] = [light(colour), light("--code")].sort((x, y) => y - x);
                  return (a + 0.05) / (b + 0.05) < 4.5;
                });
            }""", name)
            self.assertEqual(low, [], name)

    def test_errors_are_said(self):
        self.set("temperature", -3)
        self.page.fill("#input", "Hello")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#error:not([hidden])")
        self.assertIn("temperature", self.page.inner_text("#error"))

    def test_a_phone_and_the_dark(self):
        self.page.set_viewport_size({"width": 360, "height": 700})
        self.assertFalse(self.page.is_visible("#sidebar"))
        self.page.click("#sidebar-open")
        self.assertTrue(self.page.is_visible("#sidebar"))
        before = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        self.page.click("#theme")
        self.assertNotEqual(before,
                            self.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.page.click("#sidebar-close")
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)

    def test_figures(self):
        self.page.click("#figures-toggle")
        self.page.wait_for_selector(".figure polyline", state="attached")
        self.assertEqual(self.page.locator(".figure").count(), 5)


if __name__ == "__main__":
    unittest.main()
