// Draws the report's charts and replays from the data that the page carries.

import { drawBars, drawCurve } from "./curve.js";
import { h, replace } from "./dom.js";
import { fixed, percent, words } from "./format.js";
import { Player } from "./player.js";

const report = JSON.parse(document.getElementById("data").textContent);

function drawReport() {
  const { curves } = report;
  const common = { steps: curves.step, from: 0, to: report.steps, height: 220 };
  const box = (id) => document.getElementById(id);
  drawCurve(inner(box("reward")), { ...common, title: "Mean reward", series: [{ label: "reward", values: curves.reward_mean }], low: 0, smooth: true, format: (value) => fixed(value) });
  drawCurve(inner(box("pass")), { ...common, title: "Pass rate", series: [{ label: "pass rate", values: curves.pass_rate }], marks: report.marks, low: 0, high: 1, smooth: true, format: (value, tick) => percent(value, tick ? 0 : 1) });
  drawCurve(inner(box("clip")), { ...common, title: "Clipped tokens", series: [{ label: "above", values: curves.clip_high }, { label: "below", values: curves.clip_low }, { label: "dual", values: curves.clip_dual }], low: 0, format: (value) => percent(value, 2) });
  drawAges(inner(box("age")), common);
}

function drawAges(box, common) {
  const ages = report.age_histogram;
  const bound = report.age_bound === null ? undefined : { value: report.age_bound, label: "bound" };
  if (ages.length) drawBars(box, { title: "Age of trained tokens, in steps", labels: ages.map((_, age) => String(age)), values: ages, over: bound ? bound.value + 1 : Infinity, height: 220 });
  else drawCurve(box, { ...common, title: "Token age, in steps", series: [{ label: "mean", values: report.curves.age_mean }, { label: "oldest", values: report.curves.age_max }], bound, low: 0, whole: true, format: (value, tick) => fixed(value, tick ? 0 : 2) });
}

function inner(section) {
  return section.firstElementChild ?? section.appendChild(h("div"));
}

function drawReplays() {
  report.recordings.forEach((recording, index) => {
    const kind = recording.reward >= 1 ? "" : recording.reward > 0 ? "part" : "fail";
    const screen = h("div", { class: "screen", tabindex: "0", "aria-label": `Terminal, ${recording.label}` }), foot = h("div", { class: "viewer-foot" });
    replace(document.getElementById(`replay-${index}`), h("p", { class: "why" }, h("b", {}, recording.label), recording.instruction),
      h("div", { class: "viewer" }, h("div", { class: "viewer-head" }, h("b", {}, recording.task), h("span", { class: "said" }), h("span", { class: `tag ${kind}` }, `${words(recording.status)}, reward ${fixed(recording.reward)}`)), screen, foot));
    new Player(screen, foot, recording, { atEnd: true }).pause();
  });
}

drawReport();
drawReplays();
addEventListener("resize", drawReport);
