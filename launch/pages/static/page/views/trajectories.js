// The list of acknowledged trajectories.

import { h } from "../../dom.js";
import { clock, count, fixed } from "../../format.js";
import { List, choice, dropReasons } from "../components/lists.js";
import { passBadge, rewardCell, signed, stateBadge, statusText } from "../components/elements.js";
import { address } from "../router.js";

export const trajectoryFilters = [
  { name: "q", label: "Search", kind: "search", placeholder: "id or task" },
  {
    name: "sort",
    label: "Sort",
    options: [
      ["", "newest"],
      ["oldest", "oldest"],
      ["worst", "worst first"],
      ["best", "best first"],
      ["longest", "longest"],
      ["shortest", "shortest"],
      ["logprob_gap", "largest gap"],
    ],
  },
  choice(
    "status",
    "Ended",
    "completed",
    "turn_limit",
    "context_limit",
    "time_limit",
    "malformed_limit",
    "sandbox_destroyed",
  ),
  choice("state", "Is", "buffered", "trained", "dropped"),
  dropReasons,
  choice("passed", "Passed", ["true", "yes"], ["false", "no"]),
  { name: "task", label: "Task", kind: "search", placeholder: "part of the name" },
  { name: "step", label: "Step", kind: "text", placeholder: "7, or last" },
  { name: "group", label: "Group", kind: "number" },
  { name: "reward_min", label: "Reward from", kind: "number" },
  { name: "reward_max", label: "to", kind: "number" },
  { name: "sampled_min", label: "Tokens from", kind: "number" },
  { name: "sampled_max", label: "to", kind: "number" },
];

export const trajectoryColumns = (run) => [
  {
    title: "trajectory",
    kind: "text",
    cell: (row) => h("a", { class: "open", "data-row": true, href: address(run, "trajectories", row.id) }, row.id),
  },
  {
    title: "task",
    kind: "text",
    hide: "wide-only",
    cell: (row) => h("span", { class: "name", title: row.task }, row.task),
  },
  { title: "reward", cell: (row) => rewardCell(row.reward) },
  { title: "", kind: "text", cell: (row) => passBadge(row.passed) ?? "" },
  { title: "ended", kind: "text", cell: (row) => statusText(row.status) },
  { title: "is", kind: "text", cell: (row) => stateBadge(row.state, row.reason) },
  {
    title: "step",
    cell: (row) =>
      row.step === null ? "–" : h("a", { class: "open", href: address(run, "steps", row.step) }, String(row.step)),
  },
  { title: "advantage", cell: (row) => signed(row.advantage) },
  { title: "logprob_gap", cell: (row) => fixed(row.logprob_gap, 3) },
  { title: "sampled", cell: (row) => count(row.sampled) },
  { title: "stored", cell: (row) => (row.at ? clock(row.at) : "–") },
];

export function trajectoriesView(context) {
  const list = new List(context, {
    what: "Trajectories",
    path: "trajectories",
    filters: trajectoryFilters,
    columns: trajectoryColumns(context.run),
    noun: "trajectory",
    none: ["No trajectory matches.", "Clear the filters, or wait for the first trajectory."],
  });
  return { title: "Trajectories", element: list.element, refresh: () => list.refresh() };
}
