// A curve over steps, by uPlot; it follows the width of its box, and the light.  Charts of one key share a cross-hair.

import { h, replace } from "../dom.js";
import { colour } from "./theme.js";

const HUES = ["teal", "slate", "amber", "red", "violet"];
const HEIGHT = 132;
const SYNC = "steps";
const plots = new Set();

document.addEventListener("theme", () => plots.forEach((each) => each.draw()));

export class Chart {
  plot = null;

  // spec: {title, series: [{label, name}], format(value), low, bound}; columns: {step, name: values}
  constructor(spec) {
    this.spec = spec;
    this.readout = h("output", {});
    this.box = h("div", { class: "plot" });
    const head = h("div", { class: "curve-head" }, h("h3", { title: spec.title }, spec.title), this.readout);
    this.element = h("div", { class: "curve", "data-metric": spec.series[0].name }, head, this.box);
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.box);
    plots.add(this);
  }

  update(columns) {
    this.columns = columns;
    this.data = [columns.step, ...this.spec.series.map(({ name }) => columns[name] ?? [])];
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.read(null);
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data) return;
    const known = this.data.slice(1).some((values) => values.some(Number.isFinite));
    if (!known) return replace(this.box, h("p", { class: "blank" }, "after the first step"));
    if (!globalThis.uPlot)
      return replace(this.box, h("p", { class: "blank" }, "Curves need uPlot: run make setup with a network."));
    replace(this.box);
    this.plot = new globalThis.uPlot(this.options(), this.data, this.box);
  }

  options() {
    const ink = colour("ink-3");
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: colour("line-soft"), width: 1 } };
    const low = this.spec.low;
    return {
      width: this.box.clientWidth || 300,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: SYNC }, y: false, drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { range: (_, min, max) => range(min, max, low, this.spec.bound) } },
      axes: [
        {
          ...axis,
          size: 22,
          gap: 2,
          grid: { show: false },
          incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 5e4, 1e5],
        },
        {
          ...axis,
          size: (_, labels) => Math.max(46, 12 + 6.6 * Math.max(0, ...(labels ?? []).map((label) => label.length))),
          gap: 4,
          space: 22,
          values: (_, ticks) => ticks.map((tick) => this.spec.format(tick, true)),
        },
      ],
      series: [{}, ...this.spec.series.map((_, index) => this.stroke(index))],
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)], draw: [(plot) => this.drawBound(plot)] },
      padding: [8, 8, 0, 0],
    };
  }

  stroke(index) {
    const hue = colour(HUES[index % HUES.length]);
    const few = this.data[0].length < 3;
    return { stroke: hue, width: index ? 1.25 : 1.75, points: { show: few, size: 5, fill: hue }, spanGaps: false };
  }

  drawBound(plot) {
    if (!Number.isFinite(this.spec.bound)) return;
    const y = plot.valToPos(this.spec.bound, "y", true);
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("amber");
    ctx.setLineDash([4, 4]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  }

  // What the cross-hair is at, else the last value.
  read(index) {
    const at = index ?? this.data[0].length - 1;
    const several = this.spec.series.length > 1;
    const values = this.spec.series.map(({ label }, series) => {
      const text = `${several ? `${label} ` : ""}${this.spec.format(this.data[series + 1][at])}`;
      const mark = h("i", {}, text);
      mark.style.setProperty("--hue", `var(--${HUES[series % HUES.length]})`);
      return mark;
    });
    replace(this.readout, index === null || index === undefined ? null : `step ${this.data[0][at]}`, ...values);
  }

  fit() {
    if (this.plot && this.box.clientWidth) this.plot.setSize({ width: this.box.clientWidth, height: HEIGHT });
  }

  close() {
    this.resized.disconnect();
    this.plot?.destroy();
    plots.delete(this);
  }
}

function range(min, max, low, bound) {
  if (min === null || max === null) return [0, 1];
  const least = Math.min(min, low ?? min);
  const most = Math.max(max, bound ?? max);
  const room = (most - least || Math.abs(most) || 1) * 0.08;
  return [low !== undefined && least === low ? low : least - room, most + room];
}
