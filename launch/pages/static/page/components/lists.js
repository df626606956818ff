// A long list with filters in the address and paging; news do not move a reader who has scrolled down.

import { h, replace } from "../../dom.js";
import { count } from "../../format.js";
import { getJson, ofRun } from "../api.js";
import { empty, failure, loading, table } from "./elements.js";

// A filter with "any" before its options.
export const choice = (name, label, ...options) => ({
  name,
  label,
  options: [["", "any"], ...options.map((each) => (Array.isArray(each) ? each : [each, each.replaceAll("_", " ")]))],
});

export const dropReasons = choice(
  "reason",
  "Drop reason",
  "zero_variance",
  "all_stale",
  "too_few_members",
  "nonfinite",
  "unusable",
  "cancelled",
  "run_ended",
);

const LIMIT = 50;
const TYPING_MS = 250;
const FIRST = 2; // fields
const WIDE = 900; // px

export class List {
  rows = [];
  next = null;
  total = 0;

  // spec: {what, path, filters: [field], columns, noun, none}; a field is {name, label, kind, options, placeholder}
  constructor(context, spec) {
    Object.assign(this, { ...context, spec });
    this.note = h("p", { class: "note", role: "status" });
    this.fresh = h("button", {
      type: "button",
      class: "button small fresh",
      hidden: true,
      onclick: () => this.first(),
    });
    this.more = h("button", { type: "button", class: "button", hidden: true, onclick: () => this.further() }, "More");
    this.body = h("div", {}, loading(8));
    const clear = h("button", { type: "button", class: "button small", onclick: () => this.clear() }, "Clear");
    this.fields = spec.filters.map((field) => control(field, this.query, (value) => this.filter(field.name, value)));
    this.element = h(
      "section",
      { class: "panel", "aria-label": spec.what },
      this.bar(clear),
      h("div", { class: "panel-head" }, h("span", {}), this.fresh, this.note),
      this.body,
      this.more,
    );
    this.first();
  }

  // The first fields are always shown, the others if there is room or one of them is set.
  bar(clear) {
    const [first, others] = [this.fields.slice(0, FIRST), this.fields.slice(FIRST)];
    const set = this.spec.filters.slice(FIRST).some((field) => this.query.has(field.name));
    const more = h(
      "details",
      { class: "more-filters", open: set || innerWidth > WIDE },
      h("summary", {}, "Filters"),
      h("div", { class: "filters" }, ...others, clear),
    );
    return h(
      "form",
      { class: "stack tight", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", { class: "filters" }, ...first),
      others.length > 0 && more,
    );
  }

  filter(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    this.setQuery(this.query);
    this.first();
  }

  clear() {
    for (const name of [...this.query.keys()]) this.query.delete(name);
    this.setQuery(this.query);
    for (const field of this.fields) for (const input of field.querySelectorAll("input, select")) input.value = "";
    this.first();
  }

  async ask(cursor) {
    const given = Object.fromEntries(
      [...this.query].filter(([name]) => this.spec.filters.some((field) => field.name === name)),
    );
    return getJson(ofRun(this.run, this.spec.path, { ...given, limit: LIMIT, cursor }), this.signal);
  }

  async first() {
    await this.take(async () => {
      const page = await this.ask();
      this.rows = page.rows;
      this.fresh.hidden = true;
      return page;
    });
  }

  async further() {
    await this.take(async () => {
      const page = await this.ask(this.next);
      this.rows = [...this.rows, ...page.rows];
      return page;
    });
  }

  // Only the response to the newest request is drawn, as an older one may arrive later.
  async take(ask) {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      const page = await ask();
      if (turn !== this.turn) return;
      [this.next, this.total] = [page.next, page.total];
      this.draw();
    } catch (error) {
      if (error.name === "AbortError" || turn !== this.turn) return;
      if (error.status === 0 && this.rows.length) return; // the bar says that the monitor is away
      replace(
        this.body,
        failure(error, () => this.first()),
      );
    }
  }

  // The first page follows the run; further down, news are only announced.
  async refresh() {
    if (this.rows.length <= LIMIT && scrollY < 80) return this.first();
    const page = await this.ask().catch(() => null);
    const news = page ? page.total - this.total : 0;
    this.fresh.hidden = news <= 0;
    this.fresh.textContent = `↑ ${count(news)} new`;
  }

  draw() {
    this.note.textContent = `${count(this.rows.length)} of ${pluralOf(this.total, this.spec.noun)}`;
    this.more.hidden = this.next === null;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    replace(
      this.body,
      this.rows.length ? table(this.spec.columns, this.rows, { label: this.spec.what }) : empty(...this.spec.none),
    );
    if (focused) this.body.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
}

function control(field, query, changed) {
  const value = query.get(field.name) ?? "";
  if (field.options) {
    const choices = field.options.map(([given, text]) =>
      h("option", { value: given, selected: given === value }, text),
    );
    const known = field.options.some(([given]) => given === value);
    const own = known ? [] : [h("option", { value, selected: true }, value)];
    return label(
      field,
      h("select", { name: field.name, onchange: (event) => changed(event.target.value) }, ...choices, ...own),
    );
  }
  let timer = 0;
  const oninput = (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => changed(event.target.value.trim()), TYPING_MS);
  };
  const props = { name: field.name, type: field.kind, value, placeholder: field.placeholder, oninput, step: "any" };
  return label(field, h("input", { ...props, "data-filter": field.kind === "search" }));
}

function label(field, input) {
  return h("label", { class: "field" }, field.label, input);
}

function pluralOf(total, noun) {
  const several = noun.endsWith("y") ? `${noun.slice(0, -1)}ies` : `${noun}s`;
  return `${count(total)} ${total === 1 ? noun : several}`;
}
