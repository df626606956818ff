// Draws the charts of a comparison of runs or of a simulation from the data that the page carries.

import { h } from "./dom.js";
import { compact, percent } from "./format.js";
import { Chart } from "./page/components/chart.js";

const HEIGHT = 200;
const { charts } = JSON.parse(document.getElementById("data").textContent);

function drawChart({ title, note, labels, x_label, series, references, bars, share, from_zero }, index) {
  const named = series.map(({ label }, number) => ({ label, name: `series-${number}` }));
  const chart = new Chart({
    ...{ title, labels, references, bars, height: HEIGHT },
    series: named,
    xLabel: x_label,
    low: from_zero ? 0 : undefined,
    format: share ? (value, tick) => percent(value, tick ? 0 : 1) : compact,
  });
  document.getElementById(`chart-${index}`).append(chart.element);
  chart.element.querySelector(".curve-head").after(h("p", { class: "note" }, note));
  const columns = Object.fromEntries(named.map(({ name }, number) => [name, series[number].values]));
  chart.update({ step: labels.map((_, place) => place), ...columns });
}

charts.forEach(drawChart);
