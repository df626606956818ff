// The list of groups, and one group with its members side by side.

import { h, replace } from "../../dom.js";
import { clock, count, fixed, milliseconds, plural, words } from "../../format.js";
import { getJson, ofRun, saved } from "../api.js";
import { exportLink } from "../components/exports.js";
import { List, choice, dropReasons } from "../components/lists.js";
import { badge, panel, passBadge, rewardCell, show, signed, stateBadge, statusText } from "../components/elements.js";
import { address } from "../router.js";

const filters = [
  { name: "q", label: "Search", kind: "search", placeholder: "number or task" },
  {
    name: "sort",
    label: "Sort",
    options: [
      ["", "newest"],
      ["oldest", "oldest"],
      ["worst", "worst first"],
      ["best", "best first"],
      ["spread", "widest spread"],
    ],
  },
  choice("state", "Is", "open", "buffered", "trained", "dropped", "mixed"),
  dropReasons,
  { name: "step", label: "Step", kind: "text", placeholder: "7, or last" },
  { name: "reward_min", label: "Mean reward from", kind: "number" },
  { name: "reward_max", label: "to", kind: "number" },
];

const reasonsOf = (row) =>
  Object.entries(row.reasons)
    .map(([reason, times]) => `${words(reason)} ${times}`)
    .join(", ");

export function groupsView(context) {
  const { run } = context;
  const columns = [
    {
      title: "group",
      kind: "text",
      cell: (row) =>
        h("a", { class: "open", "data-row": true, href: address(run, "groups", row.group) }, String(row.group)),
    },
    { title: "task", kind: "text", cell: (row) => h("span", { class: "name", title: row.task }, row.task) },
    { title: "is", kind: "text", cell: (row) => stateBadge(row.state, reasonsOf(row)) },
    { title: "mean reward", cell: (row) => fixed(row.reward_mean) },
    { title: "min … max", cell: spread },
    { title: "passed", cell: (row) => `${row.passed} of ${row.arrived}` },
    { title: "size", cell: (row) => `${row.arrived}/${row.size}` },
    {
      title: "step",
      cell: (row) =>
        row.step === null ? "–" : h("a", { class: "open", href: address(run, "steps", row.step) }, String(row.step)),
    },
    { title: "sampled", cell: (row) => count(row.sampled) },
    { title: "closed", cell: (row) => (row.closed_at ? clock(row.closed_at) : "–") },
  ];
  const none = ["No group matches.", "Clear the filters, or wait for the first group."];
  const list = new List(context, { what: "Groups", path: "groups", filters, columns, noun: "group", none });
  return { title: "Groups", element: list.element, refresh: () => list.refresh() };
}

function spread({ reward_min: low, reward_max: high, reward_mean: mean }) {
  if (mean === null) return "–";
  const at = (value) => `${100 * Math.min(1, Math.max(0, value))}%`;
  const range = h("i", {});
  range.style.left = at(low);
  range.style.right = `calc(100% - ${at(high)})`;
  const middle = h("b", {});
  middle.style.left = at(mean);
  return h("span", { title: `${fixed(low)} … ${fixed(high)}` }, h("span", { class: "spread" }, range, middle));
}

export function groupView({ run, id, signal }) {
  const box = h("div", { class: "stack" });
  const load = () =>
    show(
      box,
      () => getJson(ofRun(run, `groups/${encodeURIComponent(id)}`), signal),
      (group) => drawGroup(run, group),
    );
  load();
  return { title: `Group ${id}`, element: box, refresh: load };
}

function drawGroup(run, { row, members, missing }) {
  const head = h(
    "div",
    { class: "title" },
    h("h1", {}, `Group ${row.group}`),
    stateBadge(row.state, reasonsOf(row)),
    h(
      "p",
      { class: "note" },
      [
        row.task,
        words(row.outcome),
        row.step !== null && `step ${row.step}`,
        `${plural(row.arrived, "member")} of ${row.size}`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
    !saved && h("div", { class: "right" }, exportLink(run, "groups", row.group)),
  );
  const note =
    row.reward_mean === null
      ? ""
      : `mean ${fixed(row.reward_mean)}, ${fixed(row.reward_min)} to ${fixed(row.reward_max)}`;
  return h(
    "div",
    { class: "stack" },
    head,
    panel("Members side by side", { note }, membersTable(run, members, missing)),
  );
}

// Members are columns, so that one line compares them all.
function membersTable(run, members, missing) {
  const cells = (title, cell, className = "") =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: "row" }, title),
      ...members.map((each) => h("td", { class: className }, each.problem ? "" : cell(each))),
    );
  const parts = [...new Set(members.flatMap((each) => Object.keys(each.parts)))];
  const stages = [...new Set(members.flatMap((each) => Object.keys(each.ms)))];
  const heads = members.map((each) =>
    h(
      "th",
      { scope: "col", class: "member" },
      h(
        "a",
        { class: "open", "data-row": true, href: address(run, "trajectories", each.row.id) },
        `sample ${each.row.sample}`,
      ),
    ),
  );
  const rows = [
    cells("reward", (each) => rewardCell(each.row.reward), "big"),
    cells("passed", (each) => passBadge(each.row.passed) ?? "–"),
    ...parts.map((name) => cells(`part: ${words(name)}`, (each) => fixed(each.parts[name]))),
    cells("advantage", (each) => signed(each.row.advantage)),
    cells("ended", (each) => statusText(each.row.status)),
    cells("is", (each) => badge(each.row.state, each.row.state === "trained" ? "good" : "warn")),
    members.some((each) => each.row.reason) &&
      cells("drop reason", (each) => h("span", { class: "why" }, words(each.row.reason))),
    cells("tests", (each) => (each.tests ? `${each.tests_passed} of ${each.tests}` : "–")),
    cells("turns", (each) => String(each.turns)),
    cells("sampled tokens", (each) => count(each.row.sampled)),
    cells("all tokens", (each) => count(each.row.tokens)),
    cells("mean gap", (each) => fixed(each.row.logprob_gap, 3)),
    ...stages.map((stage) => cells(`time: ${words(stage)}`, (each) => milliseconds(each.ms[stage] ?? NaN))),
    members.some((each) => each.error) &&
      cells("error", (each) => h("span", { class: "error" }, each.error.slice(0, 120))),
  ].filter(Boolean);
  const grid = h(
    "table",
    { class: "members", "aria-label": "Members" },
    h("thead", {}, h("tr", { class: "head" }, h("th", { class: "row" }, ""), ...heads)),
    h("tbody", {}, ...rows),
  );
  const broken = members
    .filter((each) => each.problem)
    .map((each) => h("p", { class: "error" }, `${each.row.id}: ${each.problem}`));
  const gone =
    missing.length > 0 &&
    h("p", { class: "note" }, `Not here: ${missing.map((sample) => `sample ${sample}`).join(", ")}.`);
  const box = h("div", { class: "stack tight" });
  replace(box, h("div", { class: "scroll" }, grid), ...broken, gone);
  return box;
}
