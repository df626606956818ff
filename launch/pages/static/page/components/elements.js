// Elements of all views: headings, badges, tables, and the states of a request (loading, empty, failed).

import { h, replace } from "../../dom.js";
import { fixed, percent, words } from "../../format.js";

export function signed(value, digits = 2) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value).toFixed(digits);
  return `${Number(size) === 0 ? "" : value > 0 ? "+" : "−"}${size}`;
}

export function panel(title, { note, tools = [], wide, id } = {}, ...children) {
  const head = h(
    "div",
    { class: "panel-head" },
    h("h2", {}, title),
    note && h("p", { class: "note" }, note),
    ...tools,
  );
  return h("section", { class: `panel${wide ? " wide" : ""}`, "aria-label": title, id }, head, ...children);
}

export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    ...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

export function badge(text, kind = "") {
  return h("span", { class: `badge ${kind}` }, words(text));
}

const STATE_KINDS = { trained: "good", buffered: "", dropped: "warn", open: "live", mixed: "warn" };

export function stateBadge(state, reason) {
  return h(
    "span",
    { class: "badges" },
    badge(state, STATE_KINDS[state]),
    reason && h("span", { class: "why" }, words(reason)),
  );
}

export function passBadge(passed) {
  return passed === null ? null : badge(passed ? "passed" : "failed", passed ? "good" : "bad");
}

export function statusText(status) {
  return h("span", { class: status === "completed" ? "" : "odd" }, words(status));
}

// A reward as a number and a bar from 0 to 1.
export function rewardCell(value) {
  if (!Number.isFinite(value)) return h("span", { class: "reward" }, "–");
  const kind = value >= 1 ? "full" : value > 0 ? "part" : "none";
  const fill = h("i", { class: kind, width: `${100 * Math.min(1, Math.max(0, value))}%` });
  return h(
    "span",
    { class: "reward" },
    h("b", {}, fixed(value)),
    h("span", { class: "bar", "aria-hidden": "true" }, fill),
  );
}

// columns: [{title, cell(row), kind: "text" | "number", hide: "narrow"}]; the first one's link opens the row.
export function table(columns, rows, { label }) {
  const className = (column) => [column.kind === "text" ? "text" : "num", column.hide ?? ""].join(" ").trim();
  const head = columns.map((column) => h("th", { scope: "col", class: className(column) }, column.title));
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      ...columns.map((column) => h("td", { class: className(column), "data-title": column.title }, column.cell(row))),
    ),
  );
  const grid = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body));
  return h("div", { class: "scroll" }, grid);
}

export function empty(title, hint = "") {
  return h("div", { class: "state" }, h("p", {}, title), hint && h("p", { class: "note" }, hint));
}

export function failure(error, again) {
  const button = again && h("button", { type: "button", class: "button", onclick: again }, "Try again");
  return h("div", { class: "state failed", role: "alert" }, h("p", {}, error.message), button);
}

export function loading(rows = 4) {
  const lines = Array.from({ length: rows }, () => h("i", {}));
  return h("div", { class: "skeleton", "aria-busy": "true", "aria-label": "loading" }, ...lines);
}

// Draws the result of `ask` into `box`; the old content stays until it has arrived.
export async function show(box, ask, draw) {
  if (!box.firstChild) replace(box, loading());
  try {
    const found = await ask();
    replace(box, draw(found));
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 0 && !box.querySelector(".skeleton, .failed")) return; // the bar says that the monitor is away
    replace(box, failure(error, error.status === 404 || error.status === 410 ? null : () => show(box, ask, draw)));
  }
}

export function copyable(command) {
  const copied = h("span", { class: "copied", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(command);
      copied.textContent = "copied";
    } catch {
      copied.textContent = "select and copy";
    }
  };
  const button = h(
    "button",
    { type: "button", class: "button small", onclick: copy, "aria-label": `Copy: ${command}` },
    "Copy",
  );
  return h("div", { class: "command" }, h("code", {}, command), copied, button);
}

export const share = (value) => percent(value, 0);
