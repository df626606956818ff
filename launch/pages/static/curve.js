// Small SVG charts: a curve over steps with a cross-hair, and bars.  No library, no request.

import { h, replace, s } from "./dom.js";

const LEFT = 40;
const RIGHT = 12;
const TOP = 8;
const BOTTOM = 20;

// chart: {title, steps, series: [{label, values}], from, to, low, high, whole, format, bound: {value, label}, marks,
// smooth, height, blank}.  A mark {value, stderr, label, at} is an evaluation, at the curve's "start" or "end", or at a
// step.
export function drawCurve(box, chart) {
  const height = chart.height ?? 150;
  const width = widthOf(box);
  const plot = h("div", { height: `${height}px` });
  replace(box, h("div", { class: "curve" }, curveHead(chart), plot));
  if (!hasSomething(chart)) return replace(plot, h("div", { class: "blank" }, chart.blank ?? "after the first step"));
  const scale = curveScale(chart, width, height);
  const svg = canvas(chart.title, width, height);
  svg.append(...axes(chart, scale), ...bound(chart, scale), ...lines(chart, scale), ...marks(chart, scale));
  replace(plot, svg);
  crossHair(plot, svg, chart, scale);
}

// bars: {title, labels, values, over: index of the first bar beyond a bound, height}
export function drawBars(box, chart) {
  const height = chart.height ?? 150;
  const width = widthOf(box);
  const base = height - BOTTOM;
  const top = Math.max(...chart.values, 1e-9);
  const total = chart.values.reduce((sum, value) => sum + value, 0);
  const step = (width - LEFT) / chart.values.length;
  const size = Math.min(64, step * 0.7);
  const group = s("g", { class: "bars" });
  chart.values.forEach((value, index) => {
    const tall = (value / top) * (base - 20);
    const x = LEFT / 2 + index * step + step / 2;
    const share = `${((100 * value) / (total || 1)).toFixed(1)} %`;
    const bar = { x: x - size / 2, y: base - tall, width: size, height: Math.max(tall, 1), rx: 2 };
    group.append(
      s("rect", { ...bar, class: index >= (chart.over ?? Infinity) ? "over" : undefined }),
      s("text", { x, y: base - tall - 6, "text-anchor": "middle" }, share),
      s("text", { x, y: height - 4, "text-anchor": "middle" }, chart.labels[index]),
    );
  });
  const svg = canvas(chart.title, width, height);
  svg.append(s("line", { x1: LEFT / 2, x2: width - LEFT / 2, y1: base, y2: base, class: "axis" }), group);
  const plot = h("div", { height: `${height}px` }, svg);
  replace(box, h("div", { class: "curve" }, curveHead({ title: chart.title, series: [] }), plot));
}

function widthOf(box) {
  return Math.max(220, box.clientWidth || 400);
}

function canvas(title, width, height) {
  return s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
}

function hasSomething(chart) {
  return chart.series.some((series) => series.values.some(Number.isFinite)) || (chart.marks ?? []).length > 0;
}

function curveHead(chart) {
  const several = chart.series.length > 1 ? chart.series : [];
  const legend = several.map((series, index) => h("span", { class: `s${index}` }, series.label));
  if (chart.bound) legend.push(h("span", { class: "bound" }, chart.bound.label));
  return h("div", { class: "curve-head" }, h("h3", {}, chart.title), h("p", { class: "legend" }, ...legend));
}

function curveScale(chart, width, height) {
  const all = chart.series.flatMap((series) => series.values).filter(Number.isFinite);
  for (const mark of chart.marks ?? []) all.push(mark.value - (mark.stderr ?? 0), mark.value + (mark.stderr ?? 0));
  if (chart.bound) all.push(chart.bound.value);
  let low = chart.low ?? Math.min(...all);
  let high = chart.high ?? Math.max(...all);
  if (high - low < 1e-12) high = low + (Math.abs(low) || 1);
  const made = niceTicks(low, high, height > 120 ? 4 : 2, chart.whole ? 1 : 0);
  if (chart.low === undefined) low = Math.min(low, made[0]);
  if (chart.high === undefined) high = Math.max(high, made.at(-1));
  const ticks = made.filter((tick) => tick >= low - 1e-12 && tick <= high + 1e-12);
  const from = chart.from ?? chart.steps[0] ?? 0;
  const to = Math.max(chart.to ?? 0, chart.steps.at(-1) ?? 0, from + 1);
  const x = (step) => LEFT + ((step - from) / (to - from)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - (value - low) / (high - low)) * (height - TOP - BOTTOM);
  return { x, y, low, high, from, to, ticks, width, height };
}

function niceTicks(low, high, wanted, least = 0) {
  const rough = Math.max((high - low) / wanted, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factors = least ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const size = factors.map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.floor(low / size + 1e-9) * size; tick <= high + size * 0.999; tick += size) {
    ticks.push(Number(tick.toPrecision(12)));
  }
  return ticks;
}

function across(scale, y, kind) {
  return s("line", { x1: LEFT, x2: scale.width - RIGHT, y1: y, y2: y, class: kind });
}

function axes(chart, scale) {
  const drawn = scale.ticks.flatMap((tick) => [
    across(scale, scale.y(tick), tick === 0 ? "axis" : "grid"),
    s("text", { x: LEFT - 8, y: scale.y(tick) + 3.5, "text-anchor": "end" }, chart.format(tick, true)),
  ]);
  for (const tick of niceTicks(scale.from, scale.to, 4)) {
    const step = Math.round(tick);
    if (step !== tick || step < scale.from || step > scale.to) continue;
    drawn.push(s("text", { x: scale.x(step), y: scale.height - 4, "text-anchor": "middle" }, String(step)));
  }
  return drawn;
}

function bound(chart, scale) {
  return chart.bound ? [across(scale, scale.y(chart.bound.value), "bound")] : [];
}

function lines(chart, scale) {
  const drawn = [];
  const x = (at) => scale.x(chart.steps[at]);
  chart.series.forEach(({ values }, index) => {
    const smooth = chart.smooth && values.length > 8;
    if (smooth) drawn.push(s("path", { d: pathOf(values, x, scale.y), class: `line raw s${index}` }));
    const shown = smooth ? smoothed(values) : values;
    drawn.push(s("path", { d: pathOf(shown, x, scale.y), class: `line s${index}` }));
    const dot = { cx: x(0), cy: scale.y(values[0]), r: 3, class: `dot s${index}` };
    if (values.length === 1) drawn.push(s("circle", dot));
  });
  return drawn.reverse();
}

function marks(chart, scale) {
  const shapes = { start: startMark, end: endMark };
  return (chart.marks ?? []).flatMap((mark) => (shapes[mark.at] ?? stepMark)(mark, scale));
}

function stepMark(mark, scale) {
  const [x, y] = [scale.x(mark.at), scale.y(mark.value)];
  return [
    ...whisker(mark, scale, x),
    s("circle", { cx: x, cy: y, r: 3, class: "mark after" }),
    s("text", { x, y: y - 8, "text-anchor": "middle", class: "mark-text" }, mark.label),
  ];
}

function startMark(mark, scale) {
  const [x, y] = [scale.x(scale.from), scale.y(mark.value)];
  return [
    across(scale, y, "mark-line"),
    ...whisker(mark, scale, x),
    s("circle", { cx: x, cy: y, r: 4, class: "mark before" }),
    s("text", { x: x + 10, y: y + 15, "text-anchor": "start", class: "mark-text" }, mark.label),
  ];
}

function endMark(mark, scale) {
  const [x, y] = [scale.x(scale.to), scale.y(mark.value)];
  return [
    ...whisker(mark, scale, x),
    s("circle", { cx: x, cy: y, r: 4, class: "mark after" }),
    s("text", { x: x - 10, y: y - 8, "text-anchor": "end", class: "mark-text" }, mark.label),
  ];
}

function whisker(mark, scale, x) {
  if (!mark.stderr) return [];
  const [y1, y2] = [scale.y(mark.value - mark.stderr), scale.y(mark.value + mark.stderr)];
  return [s("line", { x1: x, x2: x, y1, y2, class: `whisker ${mark.at === "start" ? "start" : "end"}` })];
}

function crossHair(plot, svg, chart, scale) {
  const line = s("line", { y1: TOP, y2: scale.height - BOTTOM, class: "cross", visibility: "hidden" });
  const tip = h("div", { class: "tip", hidden: true });
  svg.append(line);
  plot.append(tip);
  plot.addEventListener("pointerleave", () => {
    tip.hidden = true;
    line.setAttribute("visibility", "hidden");
  });
  plot.addEventListener("pointermove", (event) => {
    if (!chart.steps.length) return;
    const frame = svg.getBoundingClientRect();
    const near = nearest(chart, scale, ((event.clientX - frame.left) / frame.width) * scale.width);
    const x = scale.x(chart.steps[near]);
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
    line.setAttribute("visibility", "visible");
    replace(tip, h("div", {}, `step ${chart.steps[near]}`), ...valuesAt(chart, near));
    tip.hidden = false;
    const share = x / scale.width;
    tip.style.left = share < 0.6 ? `${100 * share + 3}%` : "auto";
    tip.style.right = share < 0.6 ? "auto" : `${100 * (1 - share) + 3}%`;
  });
}

// Index of the step that is drawn closest to x.
function nearest(chart, scale, x) {
  const distance = (index) => Math.abs(scale.x(chart.steps[index]) - x);
  let near = 0;
  for (let index = 1; index < chart.steps.length; index += 1) if (distance(index) < distance(near)) near = index;
  return near;
}

function valuesAt(chart, index) {
  return chart.series.map(({ label, values }) => h("div", {}, label, h("b", {}, chart.format(values[index]))));
}

function pathOf(values, x, y) {
  let path = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (!Number.isFinite(value)) {
      pen = "M";
      return;
    }
    path += `${pen}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

// Centred mean over five steps: drawn over the raw line, never instead of it.
function smoothed(values) {
  return values.map((_, index) => {
    const window = values.slice(Math.max(0, index - 2), index + 3).filter(Number.isFinite);
    return window.reduce((sum, value) => sum + value, 0) / window.length;
  });
}
