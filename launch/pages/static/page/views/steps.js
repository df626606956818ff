// The list of optimizer steps, and one step with its figures and histograms.

import { h } from "../../dom.js";
import { clock, count, fixed, milliseconds, percent, words } from "../../format.js";
import { getJson, ofRun } from "../api.js";
import { bars } from "../components/bars.js";
import { List } from "../components/lists.js";
import { formatOf, groupNames, groupOf, number, titleOf } from "../components/metrics.js";
import { empty, facts, panel, rewardCell, show, table } from "../components/elements.js";
import { address } from "../router.js";
import { trajectoryColumns } from "./trajectories.js";

const WORST = 10;
const total = (counts) => Object.values(counts).reduce((sum, value) => sum + value, 0);

export function stepsView(context) {
  const { run } = context;
  const columns = [
    {
      title: "step",
      kind: "text",
      cell: (row) =>
        h("a", { class: "open", "data-row": true, href: address(run, "steps", row.step) }, String(row.step)),
    },
    { title: "reward", cell: (row) => rewardCell(row.reward_mean) },
    { title: "pass rate", cell: (row) => percent(row.pass_rate, 0) },
    { title: "loss", cell: (row) => number(row.loss ?? NaN) },
    {
      title: "groups",
      cell: (row) =>
        h("a", { class: "open", href: address(run, "groups", "", { step: row.step }) }, String(row.groups)),
    },
    {
      title: "trained",
      cell: (row) =>
        h("a", { class: "open", href: address(run, "trajectories", "", { step: row.step }) }, count(row.trained)),
    },
    {
      title: "dropped",
      cell: (row) =>
        h("span", { class: total(row.dropped) ? "why" : "", title: dropped(row) }, String(total(row.dropped))),
    },
    { title: "oldest token", cell: (row) => fixed(row.staleness_max ?? NaN, 0) },
    { title: "trained share", cell: (row) => percent(row.trained_share, 0) },
    { title: "waited", cell: (row) => milliseconds(1000 * (row.wait_s ?? NaN)) },
    { title: "took", cell: (row) => milliseconds(1000 * (row.step_s ?? NaN)) },
    { title: "weights", hide: "wide-only", cell: (row) => row.version || "–" },
    { title: "at", cell: (row) => clock(row.at) },
  ];
  const none = ["No optimizer step yet.", "The first step is taken when enough groups have closed."];
  const list = new List(context, { what: "Steps", path: "steps", filters: [], columns, noun: "step", none });
  return { title: "Steps", element: list.element, refresh: () => list.refresh() };
}

const dropped = (row) =>
  Object.entries(row.dropped)
    .map(([reason, times]) => `${words(reason)} ${times}`)
    .join(", ");

export function stepView({ run, id, signal }) {
  const box = h("div", { class: "stack" });
  show(
    box,
    async () => {
      const [line, worst] = await Promise.all([
        getJson(ofRun(run, `steps/${encodeURIComponent(id)}`), signal),
        getJson(ofRun(run, "trajectories", { step: id, sort: "worst", limit: WORST }), signal),
      ]);
      return { line, worst };
    },
    (found) => drawStep(run, id, found),
  );
  return { title: `Step ${id}`, element: box };
}

function drawStep(run, id, { line, worst }) {
  const button = (text, page, query = {}) =>
    h("a", { class: "button", href: address(run, page, "", { step: id, ...query }) }, text);
  const steps = h(
    "div",
    { class: "right" },
    button("Groups of this step", "groups"),
    button("Trajectories of this step", "trajectories"),
    neighbour(run, id, -1),
    neighbour(run, id, 1),
  );
  const head = h(
    "div",
    { class: "title" },
    h("h1", {}, `Step ${id}`),
    h("p", { class: "note" }, line.t ? new Date(line.t * 1000).toLocaleString("en-GB") : ""),
    steps,
  );
  const rows = worst.rows.length
    ? table(trajectoryColumns(run), worst.rows, { label: "Worst trajectories" })
    : empty("No trajectories are listed.");
  return h(
    "div",
    { class: "stack" },
    head,
    h("div", { class: "columns" }, ...histograms(line)),
    panel("Worst trajectories", {}, rows),
    h("div", { class: "columns" }, ...figures(line)),
  );
}

function neighbour(run, id, by) {
  const to = Number(id) + by;
  return h(
    "a",
    {
      class: "button",
      href: address(run, "steps", to),
      "data-key": by < 0 ? "[" : "]",
      "aria-label": by < 0 ? "Previous step" : "Next step",
    },
    by < 0 ? "←" : "→",
  );
}

function histograms(line) {
  const listed = (name) =>
    Array.isArray(line[name])
      ? line[name].map((value, index) => [String(index), value])
      : Object.entries(line[name] ?? {});
  const shown = [
    ["Staleness of trained tokens, in steps", listed("staleness_histogram"), count],
    [
      "Trained share by tenth of length",
      listed("trained_share_by_decile").map(([name, value]) => [`${Number(name) + 1}`, value]),
      (value) => percent(value, 0),
    ],
    ["Dropped", listed("dropped").map(([name, value]) => [words(name), value]), count],
    ["Sampled tokens by turn", listed("tokens_by_turn"), count],
  ];
  return shown
    .filter(([, rows]) => rows.some(([, value]) => Number.isFinite(value) && value > 0))
    .map(([title, rows, format]) => panel(title, {}, bars(rows, format)));
}

function figures(line) {
  const known = Object.entries(line).filter(
    ([name, value]) => Number.isFinite(value) && !["step", "t", "seq"].includes(name),
  );
  return groupNames
    .map((group) => [group, known.filter(([name]) => groupOf(name) === group)])
    .filter(([, rows]) => rows.length)
    .map(([group, rows]) =>
      panel(group, {}, facts(rows.map(([name, value]) => [titleOf(name), formatOf(name)(value)]))),
    );
}
