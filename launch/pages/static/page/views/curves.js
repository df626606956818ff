// Small charts of every metric of the run, by group, with a filter and a common cross-hair.

import { h, replace } from "../../dom.js";
import { getJson, ofRun } from "../api.js";
import { Chart } from "../components/chart.js";
import { formatOf, groupNames, groupOf, titleOf } from "../components/metrics.js";
import { empty, failure, loading, panel } from "../components/elements.js";

const POINTS = 600;

export function curvesView({ run, query, setQuery, signal }) {
  const view = new Curves(run, query, setQuery, signal);
  view.load();
  return { title: "Curves", element: view.element, refresh: () => view.load(), close: () => view.close() };
}

class Curves {
  charts = new Map(); // metric → Chart

  constructor(run, query, setQuery, signal) {
    Object.assign(this, { run, query, setQuery, signal });
    this.search = h("input", {
      type: "search",
      placeholder: "part of a name",
      value: query.get("q") ?? "",
      "data-filter": true,
    });
    this.search.addEventListener("input", () => this.narrow("q", this.search.value));
    this.chips = h("div", { class: "filters", role: "group", "aria-label": "Groups" });
    this.note = h("p", { class: "note" });
    this.body = h("div", { class: "stack" }, loading(6));
    const find = h("label", { class: "field" }, "Filter", this.search);
    this.element = h(
      "div",
      { class: "stack" },
      h("div", { class: "filters" }, find, this.chips, this.note),
      this.body,
    );
  }

  narrow(name, value) {
    if (value) this.query.set(name, value);
    else this.query.delete(name);
    this.setQuery(this.query);
    this.arrange();
  }

  async load() {
    try {
      this.columns = await getJson(ofRun(this.run, "metrics", { points: POINTS }), this.signal);
    } catch (error) {
      const away = error.status === 0 && this.columns; // the bar says so, and what was there stays
      if (error.name !== "AbortError" && !away)
        replace(
          this.body,
          failure(error, () => this.load()),
        );
      return;
    }
    const names = this.columns.names.filter((name) => name !== "step");
    if (names.length !== this.shownOf?.length) this.arrange();
    for (const [name, chart] of this.charts)
      chart.update({ step: this.columns.step, [name]: this.columns.columns[name] });
  }

  arrange() {
    if (!this.columns) return;
    const [words, chosen] = [(this.query.get("q") ?? "").toLowerCase(), this.query.get("group") ?? ""];
    const names = this.columns.names.filter((name) => name !== "step");
    this.shownOf = names;
    const here = names.filter((name) => (!chosen || groupOf(name) === chosen) && matches(name, words));
    this.drawChips(names, chosen);
    this.note.textContent = `${here.length} of ${names.length}`;
    this.close();
    const sections = groupNames.map((group) =>
      this.section(
        group,
        here.filter((name) => groupOf(name) === group),
      ),
    );
    const none = names.length ? "No metric matches." : "No optimizer step yet.";
    replace(this.body, ...sections.filter(Boolean), !here.length && empty(none));
  }

  section(group, names) {
    if (!names.length) return null;
    const charts = names.map((name) => this.chart(name));
    return panel(group, {}, h("div", { class: "curves" }, ...charts.map((chart) => chart.element)));
  }

  chart(name) {
    const chart = new Chart({ title: titleOf(name), series: [{ label: name, name }], format: formatOf(name) });
    this.charts.set(name, chart);
    requestAnimationFrame(() => chart.update({ step: this.columns.step, [name]: this.columns.columns[name] }));
    return chart;
  }

  drawChips(names, chosen) {
    const there = groupNames.filter((group) => names.some((name) => groupOf(name) === group));
    const chip = (group, text) =>
      h(
        "button",
        {
          type: "button",
          class: "button small",
          "aria-pressed": String(chosen === group),
          onclick: () => this.narrow("group", group),
        },
        text,
      );
    replace(this.chips, chip("", "All"), ...there.map((group) => chip(group, group)));
  }

  close() {
    for (const chart of this.charts.values()) chart.close();
    this.charts.clear();
  }
}

function matches(name, words) {
  return !words || name.includes(words.replaceAll(" ", "_")) || titleOf(name).toLowerCase().includes(words);
}
