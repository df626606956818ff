// All runs of the folder that the monitor was started in.

import { h, replace } from "../../dom.js";
import { fixed, percent } from "../../format.js";
import { getJson } from "../api.js";
import { badge, empty, panel, show, table } from "../components/elements.js";
import { address } from "../router.js";

const KINDS = { running: "good", finished: "live", failed: "bad", stopped: "warn", damaged: "bad" };

export function runsView({ signal }) {
  const box = h("div", {});
  const draw = ({ runs, current }) =>
    runs.length
      ? table(columns(current), runs, { label: "Runs" })
      : empty("No runs in this folder yet.", "longshore cluster demo starts one.");
  const load = () => show(box, () => getJson("/api/runs", signal), draw);
  load();
  return { title: "Runs", element: h("div", {}, panel("Runs", { note: "newest first" }, box)), refresh: load };
}

const columns = (current) => [
  {
    title: "run",
    kind: "text",
    cell: (run) => h("a", { class: "open", "data-row": true, href: address(run.id) }, run.id),
  },
  { title: "", kind: "text", cell: (run) => status(run, current) },
  { title: "recipe", kind: "text", hide: "wide-only", cell: (run) => run.recipe },
  { title: "step", cell: (run) => (run.steps ? `${run.step} of ${run.steps}` : String(run.step)) },
  { title: "reward", cell: (run) => fixed(run.reward_mean) },
  { title: "pass rate", hide: "wide-only", cell: (run) => percent(run.pass_rate, 0) },
  {
    title: "last written",
    hide: "wide-only",
    cell: (run) =>
      new Date(run.changed_at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }),
  },
];

function status(run, current) {
  if (run.problem) return h("span", { class: "why" }, run.problem);
  const box = h("span", { class: "badges" });
  replace(
    box,
    badge(run.status, KINDS[run.status]),
    run.id === current && h("span", { class: "note" }, "current"),
  );
  return box;
}
