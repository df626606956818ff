// A chart over optimizer steps, or over labelled places, by uPlot.  It follows the width of its box and the theme.
// Charts over steps share a cross-hair, and so do charts with the same x label.

import { h, replace } from "../../dom.js";
import { colour } from "../theme.js";

const HUES = ["teal", "slate", "amber", "red", "violet"];
const HEIGHT = 132;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 5e4, 1e5];
const SMOOTHED = 8; // steps: fewer are drawn as they are
const SYNC = "steps";
const BARS_WIDTH = 0.72; // of a place on the x axis
const plots = new Set();

document.addEventListener("theme", () => plots.forEach((each) => each.draw()));

export class Chart {
  plot = null;

  // spec: {title, series: [{label, name}], format(value, tick)}, and optionally
  //   low, high: ends of the value axis; whole: ticks are whole numbers
  //   bound: a value that is drawn as a dashed line; references: [{label, value}], dashed lines with a label
  //   labels, xLabel: texts of the x axis, whose columns.step are 0, 1, …, and its name; bars: draw bars, not lines
  //   height: pixels; steps: the axis reaches from 0 to this step; smooth: a running mean is drawn over the values
  //   marks: [{value, stderr, label, at}], evaluations at the "start" or "end" of the axis or at a step
  // columns: {step, name: values}
  constructor(spec) {
    this.spec = spec;
    this.readout = h("output", {});
    this.box = h("div", { class: "plot", height: spec.height && `${spec.height}px` });
    const head = h("div", { class: "curve-head" }, h("h3", { title: spec.title }, spec.title), this.readout);
    this.element = h("div", { class: "curve", "data-metric": spec.series[0].name }, head, this.box);
    this.resized = new ResizeObserver(() => this.fit());
    this.resized.observe(this.box);
    plots.add(this);
  }

  update(columns) {
    this.columns = columns;
    const values = this.spec.series.map(({ name }) => columns[name] ?? []);
    this.smoothed = Boolean(this.spec.smooth) && columns.step.length > SMOOTHED;
    this.data = [columns.step, ...values, ...(this.smoothed ? values.map(runningMean) : [])];
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.read(null);
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.data) return;
    const known = this.spec.marks?.length || this.data.slice(1).some((values) => values.some(Number.isFinite));
    if (!known) return replace(this.box, h("p", { class: "blank" }, "no data before the first step"));
    if (!globalThis.uPlot)
      return replace(this.box, h("p", { class: "blank" }, "Curves need uPlot: run make setup with a network."));
    replace(this.box);
    this.plot = new globalThis.uPlot(this.options(), this.data, this.box);
  }

  options() {
    const ink = colour("ink-3");
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: ink, font, ticks: { show: false }, grid: { stroke: colour("line-soft"), width: 1 } };
    return {
      width: this.box.clientWidth || 300,
      height: this.spec.height ?? HEIGHT,
      legend: { show: false },
      cursor: {
        sync: { key: this.spec.xLabel ?? SYNC },
        y: false,
        drag: { x: !this.spec.bars, y: false },
        points: { size: 6, show: !this.spec.bars },
      },
      scales: {
        x: { time: false, range: (_, min, max) => this.stepRange(min, max) },
        y: { range: (_, min, max) => valueRange(min, max, this.spec) },
      },
      axes: [
        {
          ...axis,
          size: this.spec.labels?.some((label) => label.includes(", ")) ? 36 : 22,
          gap: 2,
          grid: { show: false },
          incrs: WHOLE,
          ...(this.spec.labels && {
            values: (_, ticks) => ticks.map((tick) => (this.spec.labels[tick] ?? "").replaceAll(", ", ",\n")),
            label: this.spec.xLabel,
            labelSize: 18,
            labelFont: font,
          }),
        },
        {
          ...axis,
          size: (_, labels) => Math.max(46, 12 + 6.6 * Math.max(0, ...(labels ?? []).map((label) => label.length))),
          gap: 4,
          space: 22,
          incrs: this.spec.whole ? WHOLE : undefined,
          values: (_, ticks) => ticks.map((tick) => this.spec.format(tick, true)),
        },
      ],
      series: [{}, ...this.data.slice(1).map((_, index) => this.stroke(index))],
      hooks: {
        setCursor: [(plot) => this.read(plot.cursor.idx)],
        draw: [(plot) => this.drawReferences(plot), (plot) => this.drawMarks(plot)],
      },
      padding: [8, 18, 0, 0],
    };
  }

  stroke(index) {
    const several = this.spec.series.length;
    const hue = colour(HUES[(index % several) % HUES.length]);
    const few = this.data[0].length < (this.spec.labels ? 16 : 3);
    if (this.spec.bars)
      return { stroke: hue, fill: hue, width: 0, points: { show: false }, paths: this.barPaths(index) };
    const faint = this.smoothed && index < several;
    const points = { show: few, size: 5, fill: hue };
    return { stroke: hue, width: index % several ? 1.25 : 1.75, alpha: faint ? 0.3 : 1, points, spanGaps: false };
  }

  // The bars of one series, beside those of the others at the same place.
  barPaths(index) {
    const width = BARS_WIDTH / this.spec.series.length;
    const left = (place) => place - BARS_WIDTH / 2 + index * width;
    return globalThis.uPlot.paths.bars({
      disp: {
        x0: { unit: 1, values: () => this.data[0].map(left) },
        size: { unit: 1, values: () => [width * 0.9] },
      },
    });
  }

  drawReferences(plot) {
    const bound = { value: this.spec.bound, label: "", ink: "amber" };
    for (const { value, label, ink = "ink-2" } of [bound, ...(this.spec.references ?? [])]) {
      if (!Number.isFinite(value)) continue;
      const { ctx, bbox } = plot;
      const [y, right, ratio] = [plot.valToPos(value, "y", true), bbox.left + bbox.width, devicePixelRatio];
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour(ink);
      line(ctx, bbox.left, y, right, y, [4, 4]);
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      ctx.fillText(label, right, y - 4 * ratio);
      ctx.restore();
    }
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    for (const mark of this.spec.marks ?? []) {
      const start = mark.at === "start";
      const step = start ? plot.scales.x.min : mark.at === "end" ? plot.scales.x.max : mark.at;
      const x = plot.valToPos(step, "x", true);
      const y = (value) => plot.valToPos(value, "y", true);
      const ratio = devicePixelRatio;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour(start ? "ink-2" : "teal");
      ctx.lineWidth = 1.5 * ratio;
      if (start) line(ctx, bbox.left, y(mark.value), bbox.left + bbox.width, y(mark.value), [2 * ratio, 3 * ratio]);
      if (mark.stderr) line(ctx, x, y(mark.value - mark.stderr), x, y(mark.value + mark.stderr));
      ctx.beginPath();
      ctx.arc(x, y(mark.value), 4 * ratio, 0, 2 * Math.PI);
      ctx.fill();
      ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = start ? "left" : mark.at === "end" ? "right" : "center";
      const aside = { left: 10, right: -10, center: 0 }[ctx.textAlign] * ratio;
      ctx.fillText(mark.label, x + aside, y(mark.value) + (start ? 16 : -9) * ratio);
      ctx.restore();
    }
  }

  // The range of the x axis, which a zoom narrows.
  stepRange(min, max) {
    const { steps, bars } = this.spec;
    if (bars) return [min - 0.5, max + 0.5];
    if (steps === undefined) return [min, max];
    const [first, last] = [this.data[0][0] ?? 0, this.data[0].at(-1) ?? 0];
    return min > first || max < last ? [min, max] : [0, Math.max(steps, last, 1)];
  }

  // Shows the values at the cross-hair, or else the last ones; with labelled places only the legend.
  read(index) {
    const here = index !== null && index !== undefined;
    const at = here ? index : this.data[0].length - 1;
    const { labels, xLabel = "step" } = this.spec;
    const place = labels ? labels[at] : this.data[0][at];
    const shown = (value) => (here || !labels ? this.spec.format(value) : "");
    const several = this.spec.series.length > 1;
    const values = this.spec.series.map(({ label }, series) => {
      const text = `${several ? `${label} ` : ""}${shown(this.data[series + 1][at])}`;
      const mark = text && h("i", {}, text);
      if (mark) mark.style.setProperty("--hue", `var(--${HUES[series % HUES.length]})`);
      return mark;
    });
    replace(this.readout, here ? `${xLabel} ${place}` : null, ...values);
  }

  fit() {
    const width = this.box.clientWidth;
    if (this.plot && width) this.plot.setSize({ width, height: this.spec.height ?? HEIGHT });
  }

  close() {
    this.resized.disconnect();
    this.plot?.destroy();
    plots.delete(this);
  }
}

function line(ctx, fromX, fromY, toX, toY, dash = []) {
  ctx.save();
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(fromX, fromY);
  ctx.lineTo(toX, toY);
  ctx.stroke();
  ctx.restore();
}

function valueRange(min, max, { low, high, bound, marks = [], references = [] }) {
  const ends = marks.flatMap(({ value, stderr }) => [value - (stderr ?? 0), value + (stderr ?? 0)]);
  const known = [min, max, low, high, bound, ...references.map(({ value }) => value), ...ends].filter(Number.isFinite);
  if (!known.length) return [0, 1];
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const room = (most - least || Math.abs(most) || 1) * 0.08;
  return [least === low ? low : least - room, most === high ? high : most + room];
}

// The mean of five steps around each one, drawn over the values.
function runningMean(values) {
  return values.map((_, index) => {
    const near = values.slice(Math.max(0, index - 2), index + 3).filter(Number.isFinite);
    return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : null;
  });
}
