// What a model writes, as HTML: Markdown by marked, formulas by KaTeX, code coloured by highlight.js.
// A model's text is hostile until DOMPurify has been over it; what comes after makes elements of its
// own from plain text alone.
"use strict";
const markdown = (() => {
  const FORMULA_MAX = 4000;  // characters; what is longer stays text
  const CODE_MAX = 50000;    // a block that is longer stays in one colour

  const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  // $$..$$ and \[..\] stand alone; \(..\) and $..$ are within a line. A dollar before a space or a
  // digit after the closing one is money.
  const display = `\\$\\$([^]{1,${FORMULA_MAX}}?)\\$\\$|\\\\\\[([^]{1,${FORMULA_MAX}}?)\\\\\\]`;
  const inline = `\\\\\\(([^]{1,${FORMULA_MAX}}?)\\\\\\)|` +
                 `\\$(?![\\s$])((?:\\\\.|[^\\\\$\\n]){1,${FORMULA_MAX}}?)(?<!\\s)\\$(?!\\d)`;
  const formula = (name, level, pattern, start) => ({
    name, level,
    start: (text) => {
      const at = text.search(start);
      return at < 0 ? undefined : at;
    },
    tokenizer(text) {
      const match = pattern.exec(text);
      if (!match) return undefined;
      const tex = match.slice(1).find((group) => group !== undefined);
      const alone = (match[1] ?? match[2]) !== undefined;
      return { type: name, raw: match[0], tex, alone };
    },
    renderer: ({ tex, alone }) =>
      `<span class="math${alone ? " display" : ""}">${escape(tex)}</span>`,
  });
  marked.use({ extensions: [
    formula("formulaBlock", "block", new RegExp(`^(?:${display})[ \\t]*(?:\\n|$)`),
            /(?:^|\n)(?:\$\$|\\\[)/),
    formula("formula", "inline", new RegExp(`^(?:${display}|${inline})`), /\$|\\[([]/),
  ] });
  marked.setOptions({ gfm: true, breaks: false, mangle: false, headerIds: false });

  DOMPurify.addHook("afterSanitizeAttributes", (element) => {
    if (element.tagName !== "A") return;
    element.setAttribute("target", "_blank");
    element.setAttribute("rel", "noopener noreferrer");
  });
  const sanitize = (html) => DOMPurify.sanitize(html, {
    USE_PROFILES: { html: true }, FORBID_TAGS: ["style", "form", "input", "button", "img"],
    FORBID_ATTR: ["style", "id", "name"],
  });

  const colour = (code) => {
    const language = /\blanguage-([\w+#-]+)/.exec(code.className)?.[1];
    const text = code.textContent;
    if (!language || !hljs.getLanguage(language) || text.length > CODE_MAX) return;
    code.innerHTML = hljs.highlight(language, text, true).value;  // hljs escapes the text
  };

  // Puts `text` into `element`.
  const fill = (element, text) => {
    element.innerHTML = sanitize(marked.parse(text));
    for (const span of element.querySelectorAll("span.math")) {
      katex.render(span.textContent, span, {
        displayMode: span.classList.contains("display"), throwOnError: false, trust: false,
        strict: "ignore", maxExpand: 200, maxSize: 20,
      });
    }
    element.querySelectorAll("pre code").forEach(colour);
  };
  return { fill };
})();
