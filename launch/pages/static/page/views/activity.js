// The activity of engines, workers and the learner over time: a strip for each, stacked by state.

import { h, replace, s } from "../../dom.js";
import { clock, fixed, words } from "../../format.js";
import { getJson, ofRun } from "../api.js";
import { empty, panel, show } from "../components/elements.js";

const SLOTS = 240;
const TALL = 22;
const MAX_SHOWN = 24;
const HUES = {
  generating: "teal",
  training: "teal",
  tool: "blue",
  grading: "violet",
  starting: "slate",
  waiting: "idle",
  paused: "amber",
  loading: "rose",
  publishing: "violet",
  saving: "blue",
  delivering: "rose",
  offloaded: "amber",
  down: "red",
};
const WINDOWS = [
  ["the whole run", 0],
  ["last hour", 3600],
  ["last 10 min", 600],
  ["last minute", 60],
];
const hue = (state) => `var(--${HUES[state] ?? "ink-3"})`;

export function activityPanel(run, signal) {
  const box = h("div", {});
  const choose = h(
    "select",
    { "aria-label": "Span of time" },
    ...WINDOWS.map(([name, seconds]) => h("option", { value: seconds }, name)),
  );
  const load = () => show(box, () => ask(run, Number(choose.value), signal), draw);
  choose.addEventListener("change", load);
  const tools = [h("label", { class: "field right" }, choose)];
  load();
  return { element: panel("Activity", { tools, id: "activity" }, box), refresh: load };
}

async function ask(run, seconds, signal) {
  if (!seconds) return getJson(ofRun(run, "activity", { slots: SLOTS }), signal);
  const { until } = await getJson(ofRun(run, "activity", { slots: 1 }), signal);
  return getJson(ofRun(run, "activity", { slots: SLOTS, since: until - seconds, until }), signal);
}

function draw(activity) {
  if (!activity.tracks.length)
    return empty("No activity was recorded yet.", "Processes record it as soon as they start.");
  const tip = h("p", { class: "activity-tip" }, "Point at a strip for its values.");
  const states = [...new Set(activity.tracks.flatMap((track) => Object.keys(track.states)))];
  const more = activity.tracks.length - MAX_SHOWN;
  return h(
    "div",
    { class: "activity" },
    legend(states),
    ...activity.tracks.slice(0, MAX_SHOWN).map((track) => strip(track, activity, tip)),
    more > 0 && h("p", { class: "note" }, `and ${more} more processes`),
    axis(activity),
    tip,
  );
}

// States that share a colour are named together.
function legend(states) {
  const byHue = new Map();
  for (const state of states) byHue.set(hue(state), [...(byHue.get(hue(state)) ?? []), words(state)]);
  return h(
    "p",
    { class: "legend" },
    ...[...byHue].map(([color, names]) => {
      const mark = h("i", {});
      mark.style.background = color;
      return h("span", {}, mark, names.join(" / "));
    }),
  );
}

function axis({ since, until }) {
  const at = [since, (since + until) / 2, until];
  const times = h("p", {}, ...at.map((t) => h("span", {}, clock(t))));
  return h("div", { class: "activity-track axis" }, h("span", {}, ""), times);
}

function strip(track, activity, tip) {
  const states = Object.entries(track.states);
  const slots = states[0]?.[1].length ?? 0;
  const sums = Array.from({ length: slots }, (_, slot) => states.reduce((sum, [, values]) => sum + values[slot], 0));
  const most = Math.max(1, ...sums);
  const svg = s("svg", {
    viewBox: `0 0 ${slots} ${TALL}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": `${track.name} over time`,
  });
  const floor = new Array(slots).fill(0);
  for (const [state, values] of states) {
    const path = s("path", { d: area(values, floor, most) });
    path.style.fill = hue(state);
    svg.append(path);
  }
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const slot = Math.min(slots - 1, Math.max(0, Math.floor(((event.clientX - frame.left) / frame.width) * slots)));
    const said = states
      .filter(([, values]) => values[slot] > 0.005)
      .map(([state, values]) => `${words(state)} ${fixed(values[slot])}`);
    const at = clock(activity.since + slot * activity.slot_s);
    replace(tip, `${track.name}, ${at}: ${said.join(" · ") || "nothing"}`);
  });
  const label = h("span", { title: track.name }, track.name);
  return h("div", { class: "activity-track", "data-kind": track.kind }, label, svg);
}

// Stacks one state on top of those below it, and raises `floor`.
function area(values, floor, most) {
  const up = values.map((value, slot) => ({ slot, low: floor[slot], high: floor[slot] + value }));
  const y = (value) => (TALL * (1 - value / most)).toFixed(2);
  let path = "";
  for (const { slot, low, high } of up) {
    if (high - low > 0.002) path += `M${slot},${y(low)}V${y(high)}h1V${y(low)}Z`;
    floor[slot] = high;
  }
  return path;
}
