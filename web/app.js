// The chat page. A conversation is a tree: an edited or regenerated message is a further child of
// its parent, and what is shown is the path of chosen children. Everything is kept in the browser;
// markdown.js shows what the model says.
"use strict";
(() => {
  const KEY = "kvikk.conversations", SETTINGS = "kvikk.settings", THEME = "kvikk.theme";
  const CONVERSATIONS_MAX = 200;
  const $ = (id) => document.getElementById(id);
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const load = (key, fallback) => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? fallback;
    } catch {
      return fallback;
    }
  };
  const save = (key, value) => {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      fail("The browser has no room to keep this conversation.");
    }
  };

  let conversations = load(KEY, []);
  let settings = load(SETTINGS, {});
  let current = conversations[0] ?? null;
  let running = null;  // {controller, node} of the answer that comes
  let model = "";

  // ---- the tree -------------------------------------------------------------------------------
  const node = (role, content) => ({ role, content, children: [], chosen: 0 });
  const path = () => {
    const nodes = [];
    for (let at = current && current.root; at && at.children.length > 0;) {
      at = at.children[at.chosen];
      nodes.push(at);
    }
    return nodes;
  };
  const parentOf = (child) => {
    let parent = current.root;
    for (const at of path()) {
      if (at === child) return parent;
      parent = at;
    }
    return parent;
  };
  const add = (parent, child) => {
    parent.children.push(child);
    parent.chosen = parent.children.length - 1;
    return child;
  };
  const keep = () => {
    conversations = [current, ...conversations.filter((c) => c !== current)]
      .slice(0, CONVERSATIONS_MAX);
    save(KEY, conversations);
  };

  // ---- what is shown --------------------------------------------------------------------------
  const copy = async (text, button) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // without https the browser gives no clipboard
      const area = make("textarea", { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };

  const fill = (element, message) => {
    if (message.role === "user") {
      element.textContent = message.content;
      return;
    }
    markdown.fill(element, message.content);
    for (const pre of element.querySelectorAll("pre")) {
      const text = pre.textContent;
      const button = make("button", { type: "button", className: "copy", textContent: "Copy" });
      button.onclick = () => copy(text, button);
      pre.append(button);
    }
  };

  const tool = (text, label, action) => make("button", {
    type: "button", textContent: text, ariaLabel: label, title: label, onclick: action,
    disabled: running !== null,
  });

  const showMessage = (message) => {
    const parent = parentOf(message);
    const text = make("div", { className: "text" });
    const tools = make("div", { className: "tools row" });
    const element = make("article", { className: `message ${message.role}` }, text, tools);
    element.setAttribute("aria-label", message.role === "user" ? "You" : "The model");
    fill(text, message);
    if (parent.children.length > 1) {
      const turn = (by) => () => { parent.chosen += by; keep(); show(); };
      const earlier = tool("‹", "Earlier version", turn(-1));
      const later = tool("›", "Later version", turn(1));
      earlier.disabled ||= parent.chosen === 0;
      later.disabled ||= parent.chosen === parent.children.length - 1;
      tools.append(earlier, `${parent.chosen + 1}/${parent.children.length}`, later);
    }
    if (message.role === "user") {
      tools.append(tool("Edit", "Edit this message", () => edit(message, text)));
    } else {
      const copyButton = tool("Copy", "Copy the answer", () => copy(message.content, copyButton));
      tools.append(copyButton, tool("Regenerate", "Another answer", () => answer(parent)));
      if (message.note) tools.append(message.note);
    }
    return element;
  };

  const show = () => {
    const box = $("messages");
    const nodes = path();
    box.replaceChildren(...nodes.map(showMessage));
    if (nodes.length === 0) {
      box.append(make("p", { className: "empty", textContent: "Ask something." }));
    }
    box.scrollTop = box.scrollHeight;
    $("send").hidden = running !== null;
    $("stop").hidden = running === null;
    $("conversations").replaceChildren(...conversations.map((conversation) => {
      const open = make("button", { type: "button", className: "open",
                                    textContent: conversation.title || "New conversation" });
      open.setAttribute("aria-current", String(conversation === current));
      open.onclick = () => { halt(); current = conversation; closeSidebar(); show(); };
      const remove = make("button", { type: "button", textContent: "✕",
                                      ariaLabel: `Delete ${conversation.title}` });
      remove.onclick = () => {
        if (conversation === current) { halt(); current = null; }
        conversations = conversations.filter((c) => c !== conversation);
        save(KEY, conversations);
        show();
      };
      return make("li", {}, open, remove);
    }));
  };

  const fail = (text) => {
    $("error").textContent = text;
    $("error").hidden = text === "";
  };

  const edit = (message, element) => {
    const area = make("textarea", { value: message.content, rows: 3, ariaLabel: "Edited message" });
    const done = make("button", { type: "button", textContent: "Send" });
    const cancel = make("button", { type: "button", textContent: "Cancel", onclick: show });
    done.onclick = () => {
      const text = area.value.trim();
      if (text !== "") answer(add(parentOf(message), node("user", text)));
    };
    element.replaceChildren(area, make("div", { className: "row" }, done, cancel));
    area.focus();
  };

  // ---- the server -----------------------------------------------------------------------------
  const requestBody = (parent) => {
    const messages = [];
    if (settings.system) messages.push({ role: "system", content: settings.system });
    for (const at of path()) {
      messages.push({ role: at.role, content: at.content });
      if (at === parent) break;
    }
    const body = { messages, stream: true, stream_options: { include_usage: true } };
    for (const name of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"]) {
      const value = settings[name];
      if (value !== undefined && value !== "") body[name] = Number(value);
    }
    return body;
  };

  // Calls onData with the data of each event.
  const readEvents = async (response, onData) => {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      held += value;
      const events = held.split("\n\n");
      held = events.pop();
      for (const event of events) {
        for (const line of event.split("\n")) {
          if (line.startsWith("data: ")) onData(line.slice(6));
        }
      }
    }
  };

  const answer = async (parent) => {
    halt();
    fail("");
    const body = requestBody(parent);
    const reply = add(parent, node("assistant", ""));
    const mine = { controller: new AbortController(), node: reply };
    running = mine;
    show();
    const box = $("messages");
    const text = box.lastElementChild.querySelector(".text");
    const begun = performance.now();
    let first = 0, usage = null, pending = false, ended = false;
    const draw = () => {
      pending = false;
      const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
      fill(text, reply);
      if (atEnd) box.scrollTop = box.scrollHeight;
    };
    try {
      const response = await fetch("v1/chat/completions", {
        method: "POST", headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body), signal: mine.controller.signal,
      });
      if (!response.ok) throw new Error((await response.json()).error.message);
      await readEvents(response, (data) => {
        if (data === "[DONE]") { ended = true; return; }
        const event = JSON.parse(data);
        if (event.error) throw new Error(event.error.message);
        if (event.usage) usage = event.usage;
        const piece = event.choices?.[0]?.delta?.content;
        if (!piece) return;
        first ||= performance.now();
        reply.content += piece;
        if (!pending) { pending = true; requestAnimationFrame(draw); }
      });
      if (!ended) throw new Error("The server went away in the middle of the answer.");
    } catch (error) {
      if (error.name !== "AbortError") fail(error.message);
    }
    if (usage && first > 0) {
      const seconds = (performance.now() - first) / 1000;
      const rate = usage.completion_tokens > 1 ? (usage.completion_tokens - 1) / seconds : 0;
      reply.note = `${usage.completion_tokens} tokens, ${rate.toFixed(1)} tokens/s, first after ` +
                   `${Math.round(first - begun)} ms`;
    }
    if (reply.content === "" && !usage) {  // nothing came: as if it had not been asked
      parent.children = parent.children.filter((child) => child !== reply);
      parent.chosen = Math.max(0, parent.children.length - 1);
    }
    if (running === mine) running = null;
    save(KEY, conversations);
    show();
  };

  const halt = () => {
    if (running === null) return;
    running.controller.abort();
    running = null;
  };

  const send = () => {
    const text = $("input").value.trim();
    if (text === "" || running !== null) return;
    $("input").value = "";
    grow();
    if (current === null) current = { title: text.slice(0, 60), root: node("root", "") };
    const nodes = path();
    const parent = nodes.length > 0 ? nodes[nodes.length - 1] : current.root;
    const question = add(parent, node("user", text));
    keep();
    answer(question);
  };

  // ---- live figures ---------------------------------------------------------------------------
  const SAMPLES = 60;
  const series = {};
  const figure = (name, value, words) => {
    const list = (series[name] ??= []);
    list.push(value);
    if (list.length > SAMPLES) list.shift();
    const most = Math.max(...list, 1e-9);
    const points = list.map((v, i) => `${i},${20 - 19 * v / most}`).join(" ");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${SAMPLES - 1} 21`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", points);
    svg.append(line);
    return make("div", { className: "figure" }, make("b", { textContent: words }), name, svg);
  };
  let before = null;
  const sample = async () => {
    try {
      const response = await fetch("v1/loads");
      if (!response.ok) return;
      const now = { ...await response.json(), at: performance.now() };
      if (before !== null) {
        const seconds = (now.at - before.at) / 1000;
        const rate = (name) => (now[name] - before[name]) / seconds;
        const decode = rate("decode_rows_total"), prefill = rate("prefill_rows_total");
        const kv = 100 * now.kv_cache_usage;
        $("figures").replaceChildren(
          figure("answer tokens/s", decode, decode.toFixed(0)),
          figure("prompt tokens/s", prefill, prefill.toFixed(0)),
          figure("running, waiting", now.running + now.waiting, `${now.running}, ${now.waiting}`),
          figure(`cache in use (${now.kv})`, kv, `${kv.toFixed(1)}%`),
          figure("cached prompt tokens", rate("cached_tokens_total"),
                 String(now.cached_tokens_total)));
      }
      before = now;
    } catch {
      // The server is away; the next sample says whether it is back.
    }
  };
  let timer = null;
  const toggle = (button, panel, on) => {
    panel.hidden = !on;
    button.setAttribute("aria-expanded", String(on));
  };

  // ---- controls -------------------------------------------------------------------------------
  const grow = () => {
    const input = $("input");
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight + 2}px`;
  };
  const closeSidebar = () => $("sidebar").classList.remove("shown");
  const theme = (name) => document.documentElement.setAttribute("data-theme", name);

  $("composer").onsubmit = (event) => { event.preventDefault(); send(); };
  $("input").oninput = grow;
  $("input").onkeydown = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") halt(); });
  $("stop").onclick = halt;
  $("new").onclick = () => { halt(); current = null; closeSidebar(); show(); $("input").focus(); };
  $("sidebar-open").onclick = () => $("sidebar").classList.add("shown");
  $("sidebar-close").onclick = closeSidebar;
  $("settings-toggle").onclick = () =>
    toggle($("settings-toggle"), $("settings"), $("settings").hidden);
  $("figures-toggle").onclick = () => {
    const on = $("figures").hidden;
    toggle($("figures-toggle"), $("figures"), on);
    clearInterval(timer);
    before = null;
    if (on) {
      sample();
      timer = setInterval(sample, 1000);
    }
  };
  $("theme").onclick = () => {
    const name = document.documentElement.getAttribute("data-theme") === "dark" ? "light" : "dark";
    theme(name);
    save(THEME, name);
  };
  $("settings").onsubmit = (event) => event.preventDefault();
  for (const field of $("settings").elements) {
    field.value = settings[field.name] ?? "";
    field.oninput = () => { settings[field.name] = field.value; save(SETTINGS, settings); };
  }
  theme(load(THEME, matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  fetch("v1/models").then((response) => response.json()).then((list) => {
    model = list.data[0].id;
    $("model").textContent = model;
    document.title = `${model} – kvikk`;
  }).catch(() => fail("The server does not answer."));
  show();
  $("input").focus();
})();
