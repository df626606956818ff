// Draws the report's charts and replays from the data that the page carries.

import { ageChart, clipChart, passChart, rewardChart } from "./charts.js";
import { drawBars, drawCurve } from "./curve.js";
import { h, replace } from "./dom.js";
import { fixed, percent, words } from "./format.js";
import { Player } from "./player.js";

const HEIGHT = 220;
const report = JSON.parse(document.getElementById("data").textContent);

function drawReport() {
  const { curves } = report;
  const common = { steps: curves.step, from: 0, to: report.steps, height: HEIGHT };
  drawCurve(plotIn("reward"), { ...common, ...rewardChart(curves) });
  drawCurve(plotIn("pass"), { ...common, ...passChart(curves, report.marks) });
  drawCurve(plotIn("clip"), { ...common, ...dualClipChart(curves) });
  if (report.staleness_histogram.length) drawAges(plotIn("age"));
  else drawCurve(plotIn("age"), { ...common, ...ageChart(curves, report.max_staleness), title: "Token age, in steps" });
}

function plotIn(id) {
  const section = document.getElementById(id);
  return section.firstElementChild ?? section.appendChild(h("div"));
}

function dualClipChart(curves) {
  const chart = clipChart(curves);
  const series = [...chart.series, { label: "dual", values: curves.clip_dual }];
  return { ...chart, series, format: (value) => percent(value, 2) };
}

function drawAges(box) {
  const values = report.staleness_histogram;
  drawBars(box, {
    title: "Age of trained tokens, in steps",
    labels: values.map((_, age) => String(age)),
    values,
    over: report.max_staleness === null ? Infinity : report.max_staleness + 1,
    height: HEIGHT,
  });
}

function drawReplay(recording, index) {
  const screen = h("div", { class: "screen", tabindex: "0", "aria-label": `Terminal, ${recording.label}` });
  const foot = h("div", { class: "viewer-foot" });
  const kind = recording.reward >= 1 ? "" : recording.reward > 0 ? "part" : "fail";
  const result = `${words(recording.status)}, reward ${fixed(recording.reward)}`;
  const head = h(
    "div",
    { class: "viewer-head" },
    h("b", {}, recording.task),
    h("span", { class: "said" }),
    h("span", { class: `tag ${kind}` }, result),
  );
  replace(
    document.getElementById(`replay-${index}`),
    h("p", { class: "why" }, h("b", {}, recording.label), recording.instruction),
    h("div", { class: "viewer" }, head, screen, foot),
  );
  new Player(screen, foot, recording, { atEnd: true }).pause();
}

drawReport();
report.recordings.forEach(drawReplay);
addEventListener("resize", drawReport);
