// Draws the report's charts and replays from the data that the page carries.

import { h, replace } from "./dom.js";
import { fixed, percent, words } from "./format.js";
import { bars } from "./page/components/bars.js";
import { Chart } from "./page/components/chart.js";
import { replay } from "./replay.js";

const HEIGHT = 220;
const report = JSON.parse(document.getElementById("data").textContent);

const CHARTS = {
  reward: {
    title: "Mean reward",
    series: [{ label: "reward", name: "reward_mean" }],
    low: 0,
    smooth: true,
    format: (value) => fixed(value),
  },
  pass: {
    title: "Pass rate",
    series: [{ label: "pass rate", name: "pass_rate" }],
    marks: report.marks,
    low: 0,
    high: 1,
    smooth: true,
    format: (value, tick) => percent(value, tick ? 0 : 1),
  },
  clip: {
    title: "Clipped tokens",
    series: [
      { label: "above", name: "clip_high" },
      { label: "below", name: "clip_low" },
      { label: "dual", name: "clip_dual" },
    ],
    low: 0,
    format: (value) => percent(value, 2),
  },
  staleness: {
    title: "Token staleness, in steps",
    series: [
      { label: "mean", name: "staleness_mean" },
      { label: "oldest", name: "staleness_max" },
    ],
    bound: report.max_staleness ?? undefined,
    low: 0,
    whole: true,
    format: (value, tick) => fixed(value, tick ? 0 : 2),
  },
};

function drawChart(name) {
  const chart = new Chart({ ...CHARTS[name], steps: report.steps, height: HEIGHT });
  document.getElementById(name).append(chart.element);
  chart.update(report.curves);
}

function drawStaleness() {
  const tokens = report.staleness_histogram;
  if (!tokens.length) return drawChart("staleness");
  const all = tokens.reduce((sum, value) => sum + value, 0) || 1;
  const rows = tokens.map((value, steps) => [String(steps), value]);
  const over = report.max_staleness === null ? Infinity : report.max_staleness + 1;
  const title = h("h3", {}, "Staleness of trained tokens, in steps");
  return document.getElementById("staleness").append(title, bars(rows, (value) => percent(value / all, 1), over));
}

function drawReplay(recording, index) {
  const kind = recording.reward >= 1 ? "" : recording.reward > 0 ? "part" : "fail";
  const result = `${words(recording.status)}, reward ${fixed(recording.reward)}`;
  const why = h("p", { class: "why" }, h("b", {}, recording.label), recording.instruction);
  replace(document.getElementById(`replay-${index}`), why, replay(recording, recording.task, result, kind));
}

for (const name of ["reward", "pass", "clip"]) drawChart(name);
drawStaleness();
report.recordings.forEach(drawReplay);
