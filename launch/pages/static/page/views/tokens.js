// Tokens of a trajectory, page by page, shaded by one property, with the facts of the selected token.

import { h, replace } from "../../dom.js";
import { count, fixed, percent, words } from "../../format.js";
import { getJson } from "../api.js";
import { facts, failure, loading, panel, signed } from "../components/elements.js";

const PAGE = 2000; // what a saved file has its tokens in, too: launch/monitor/reports/standalone_page.py
const LEVELS = 6;
const SHADES = ["probability", "staleness", "use", "version", "gap", "advantage"];
const UNMASKED = new Set(["prompt", "observation", "auxiliary", "discarded"]); // where the loss mask is 0
const GAP_FULL = 0.5;
const WHY = {
  prompt: "not sampled: prompt",
  observation: "not sampled: observation",
  waiting: "sampled, no step has used it",
  auxiliary: "no loss: beside the agent's work",
  discarded: "no loss: the harness asked again",
  trained: "trained",
  stale: "no loss: beyond the staleness bound",
  dropped: "no loss: trajectory dropped",
  untrained: "no loss: unknown reason",
  clip_high: "no gradient: clipped above",
  clip_low: "no gradient: clipped below",
  clip_dual: "no gradient: dual clip",
  corrected: "no loss: masked by a correction",
};

export class TokenView {
  page = null;
  at = -1;
  shade = "probability";

  constructor({ path, signal, query, setQuery }, detail) {
    Object.assign(this, { path, signal, query, setQuery, detail });
    this.segment = 0;
    this.stream = h("div", {
      class: "stream",
      tabindex: "0",
      role: "listbox",
      "aria-label": "Tokens; use the arrow keys",
    });
    this.facts = h("aside", { class: "token-facts", "aria-live": "polite", "aria-label": "Selected token" });
    this.pager = h("span", { class: "filters" });
    this.scale = h("span", { class: "scale" });
    this.stream.addEventListener(
      "pointerover",
      (event) => event.target.dataset.at && this.look(Number(event.target.dataset.at)),
    );
    this.stream.addEventListener("keydown", (event) => this.key(event));
    const shade = h(
      "select",
      { "aria-label": "Shade by", onchange: (event) => this.reshade(event.target.value) },
      ...SHADES.map((name) => h("option", { value: name }, name === "use" ? "trained?" : name)),
    );
    const field = h("label", { class: "field" }, "Shade by", shade);
    this.body = h("div", { class: "tokens", hidden: true }, this.stream, this.facts);
    this.button = h(
      "button",
      { type: "button", class: "button small", onclick: () => this.open(0, 0) },
      "Show tokens",
    );
    this.tools = h("span", { class: "filters", hidden: true }, field, this.scale, this.pager);
    this.element = panel("Tokens", { tools: [this.button, this.tools], id: "tokens" }, this.body);
    if (query.has("token"))
      queueMicrotask(() => this.open(Number(query.get("segment") ?? 0), Number(query.get("token")), false));
  }

  async open(segment, token, jump = true) {
    this.body.hidden = this.tools.hidden = false;
    this.button.hidden = true;
    this.segment = segment;
    const start = Math.floor(token / PAGE) * PAGE;
    if (!this.page || this.page.segment !== segment || this.page.start !== start) {
      replace(this.stream, loading(8));
      try {
        this.page = await getJson(this.path(`/tokens?segment=${segment}&start=${start}&limit=${PAGE}`), this.signal);
      } catch (error) {
        if (error.name !== "AbortError")
          replace(
            this.stream,
            failure(error, () => this.open(segment, token, jump)),
          );
        return;
      }
      this.draw();
    }
    this.query.set("segment", String(segment));
    this.query.set("token", String(token));
    this.setQuery(this.query);
    this.look(token - this.page.start);
    this.spans[this.at]?.scrollIntoView({ block: jump ? "center" : "nearest" });
    if (jump) this.element.scrollIntoView({ block: "start" });
  }

  draw() {
    const starts = new Map(this.detail.segments[this.segment].turns.map((turn) => [turn.start, turn]));
    this.spans = [];
    const nodes = [];
    this.page.text.forEach((text, index) => {
      const turn = starts.get(this.page.start + index);
      if (turn)
        nodes.push(h("span", { class: "edge" }, turn.kind === "model" ? `turn ${turn.index + 1}` : words(turn.kind)));
      const span = h("span", { "data-at": index, role: "option" }, visible(text));
      this.spans.push(span);
      nodes.push(span);
    });
    replace(this.stream, ...nodes);
    this.paint();
    this.drawPager();
  }

  paint() {
    this.stream.className = `stream by-${this.shade}`;
    const levels = shadesOf(this.shade, this.page);
    this.spans.forEach((span, index) => {
      const unmasked = UNMASKED.has(this.page.use[index]);
      const level = this.shade === "use" ? `use-${this.page.use[index]}` : `q${levels[index]}`;
      span.className = `${unmasked ? "off" : level}${index === this.at ? " on" : ""}`;
    });
    const ends = {
      probability: ["likely", "unlikely"],
      staleness: ["new", "old"],
      version: ["oldest", "newest"],
      gap: ["none", "wide"],
      advantage: ["none", "large"],
    }[this.shade];
    const boxes = Array.from({ length: LEVELS + 1 }, (_, level) => h("i", { class: `q${level}` }));
    this.scale.className = `scale by-${this.shade}`;
    replace(this.scale, ...(ends ? [ends[0], ...boxes, ends[1]] : ["trained, stale, dropped, clipped"]));
  }

  reshade(name) {
    this.shade = name;
    this.paint();
  }

  drawPager() {
    const { start, end, total } = this.page;
    const go = (token, text, label, off) =>
      h(
        "button",
        {
          type: "button",
          class: "button small",
          disabled: off,
          "aria-label": label,
          onclick: () => this.open(this.segment, token, false),
        },
        text,
      );
    const segments = this.detail.segments.map((_, index) =>
      h("option", { value: index, selected: index === this.segment }, `segment ${index + 1}`),
    );
    const choose =
      segments.length > 1 &&
      h(
        "label",
        { class: "field" },
        h(
          "select",
          { "aria-label": "Segment", onchange: (event) => this.open(Number(event.target.value), 0, false) },
          ...segments,
        ),
      );
    const place = h("span", { class: "note" }, `${count(start)}–${count(end)} of ${count(total)}`);
    replace(
      this.pager,
      choose,
      go(Math.max(0, start - PAGE), "←", "Earlier tokens", start === 0),
      place,
      go(end, "→", "Later tokens", end >= total),
    );
  }

  look(index) {
    if (!this.page || index < 0 || index >= this.spans.length) return;
    this.spans[this.at]?.classList.remove("on");
    this.spans[this.at]?.setAttribute("aria-selected", "false");
    this.at = index;
    this.spans[index].classList.add("on");
    this.spans[index].setAttribute("aria-selected", "true");
    const at = (column) => this.page[column][index];
    const use = at("use");
    const rows = [
      ["token", `${at("id")}, at ${this.page.start + index}`],
      ["probability", at("probability") === null ? "" : percent(at("probability"), at("probability") < 0.01 ? 3 : 1)],
      ["log p, engine", at("logprob") === null ? "" : fixed(at("logprob"), 4)],
      ["log p, learner", at("learner_logprob") === null ? "" : fixed(at("learner_logprob"), 4)],
      ["gap", at("logprob_gap") === null ? "" : signed(at("logprob_gap"), 4)],
      ["weights", at("version")],
      ["staleness, steps", at("staleness") === null ? "" : String(at("staleness"))],
      ["loss mask", UNMASKED.has(use) ? "0" : "1"],
      ["advantage", at("advantage") === null ? "" : signed(at("advantage"), 4)],
    ];
    replace(
      this.facts,
      h("p", { class: "glyph" }, JSON.stringify(at("text"))),
      h("p", { class: "note" }, WHY[use] ?? words(use)),
      facts(rows),
    );
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 12, ArrowUp: -12, PageDown: 100, PageUp: -100 }[event.key];
    if (!by || !this.spans) return;
    event.preventDefault();
    event.stopPropagation();
    this.look(Math.min(this.spans.length - 1, Math.max(0, this.at + by)));
    this.spans[this.at].scrollIntoView({ block: "nearest" });
  }

  close() {
    this.page = null;
  }
}

// Line ends are made visible.
function visible(text) {
  return text.replaceAll("\n", "↵\n") || "∅";
}

function shadesOf(name, page) {
  if (name === "probability") return page.probability.map((p) => (p === null ? 0 : level(1 - p)));
  if (name === "gap") return page.logprob_gap.map((gap) => (gap === null ? 0 : level(Math.abs(gap) / GAP_FULL)));
  if (name === "version") return versionShades(page.version);
  const values = page[name] ?? [];
  const most = Math.max(...values.map((value) => Math.abs(value ?? 0)), 1e-9);
  return values.map((value) => level(Math.abs(value ?? 0) / most));
}

function versionShades(versions) {
  const known = [...new Set(versions.filter(Boolean))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return versions.map((version) => (version ? level((known.indexOf(version) + 1) / known.length) : 0));
}

function level(share) {
  return Math.min(LEVELS, Math.max(0, Math.round(share * LEVELS)));
}
