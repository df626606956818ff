// The log of events, live.  A reader who has scrolled up is not moved, and sees the number of new lines.

import { h, replace } from "../../dom.js";
import { clock } from "../../format.js";
import { getJson, ofRun } from "../api.js";
import { failure } from "../components/elements.js";
import { address } from "../router.js";
import { trajectoryOf } from "../ids.js";

const MOST = 2000;
const NEAR_END = 24;
const LEVELS = [
  ["", "without turns"],
  ["detail", "every turn"],
  ["warn", "problems"],
];

export function logView(context) {
  const log = new Log(context);
  log.load();
  return { title: "Log", element: log.element, events: (items) => log.take(items), close: () => {} };
}

class Log {
  lines = [];
  unseen = 0;

  constructor({ run, query, setQuery, signal }) {
    Object.assign(this, { run, query, setQuery, signal });
    const set = (name) => (event) => this.narrow(name, event.target.value);
    const search = h("input", {
      type: "search",
      placeholder: "words",
      value: query.get("q") ?? "",
      oninput: set("q"),
      "data-filter": true,
    });
    const level = h(
      "select",
      { onchange: set("level") },
      ...LEVELS.map(([value, text]) => h("option", { value, selected: value === (query.get("level") ?? "") }, text)),
    );
    this.fresh = h("button", {
      type: "button",
      class: "button small fresh",
      hidden: true,
      onclick: () => this.toEnd(),
    });
    this.note = h("p", { class: "note", role: "status" }, "following");
    this.list = h("ol", { class: "log", tabindex: "0", "aria-label": "Log", onscroll: () => this.scrolled() });
    const bar = h(
      "div",
      { class: "filters" },
      h("label", { class: "field" }, "Search", search),
      h("label", { class: "field" }, "Show", level),
      this.fresh,
      this.note,
    );
    this.element = h("section", { class: "panel stack", "aria-label": "Log" }, bar, this.list);
  }

  narrow(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    this.setQuery(this.query);
    replace(this.list);
    this.append(this.lines);
    this.toEnd();
  }

  async load() {
    try {
      const { log } = await getJson(ofRun(this.run, "state"), this.signal);
      const known = new Set(this.lines.map(keyOf));
      this.lines = [...log.filter((line) => !known.has(keyOf(line))), ...this.lines];
      replace(this.list);
      this.append(this.lines);
      this.toEnd();
    } catch (error) {
      if (error.name !== "AbortError")
        replace(
          this.list,
          failure(error, () => this.load()),
        );
    }
  }

  take(items) {
    const lines = items.map(({ line }) => line).filter(Boolean);
    const stays = this.atEnd();
    this.lines.push(...lines);
    if (this.lines.length > MOST) this.lines = this.lines.slice(-MOST);
    const shown = this.append(lines);
    while (this.list.children.length > MOST) this.list.firstChild.remove();
    if (stays) this.toEnd();
    else this.tell(this.unseen + shown);
  }

  append(lines) {
    const shown = lines.filter((line) => this.wanted(line));
    this.list.append(...shown.map((line) => this.line(line)));
    return shown.length;
  }

  wanted({ level, text }) {
    const [words, level_] = [(this.query.get("q") ?? "").toLowerCase(), this.query.get("level") ?? ""];
    if (words && !text.toLowerCase().includes(words)) return false;
    return level_ === "detail" || (level_ === "warn" ? level === "warn" || level === "bad" : level !== "detail");
  }

  line({ t, level, text, trajectory }) {
    const said = trajectory
      ? h("a", { href: address(this.run, "trajectories", trajectoryOf(trajectory)) }, text)
      : text;
    return h("li", { class: level }, h("time", {}, clock(t)), h("i", { "aria-hidden": "true" }), h("span", {}, said));
  }

  atEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR_END;
  }

  scrolled() {
    if (this.atEnd()) this.tell(0);
  }

  toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
    this.tell(0);
  }

  tell(unseen) {
    this.unseen = unseen;
    this.fresh.hidden = unseen === 0;
    this.fresh.textContent = `↓ ${unseen} unseen`;
    this.note.textContent = unseen ? "paused" : "following";
  }
}

const keyOf = ({ t, text }) => `${t} ${text}`;
