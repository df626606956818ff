// The charts of a report: for drawCurve, which is told of steps and size beside.

import { fixed, percent } from "./format.js";

export function rewardChart(curves) {
  return {
    title: "Mean reward",
    series: [{ label: "reward", values: curves.reward_mean }],
    low: 0,
    smooth: true,
    format: (value) => fixed(value),
  };
}

export function passChart(curves, marks) {
  return {
    title: "Pass rate",
    series: [{ label: "pass rate", values: curves.pass_rate }],
    marks,
    low: 0,
    high: 1,
    smooth: true,
    format: (value, tick) => percent(value, tick ? 0 : 1),
  };
}

// bound: the largest age that may be trained, null where there is none.
export function ageChart(curves, bound) {
  return {
    title: "Token age",
    series: [
      { label: "mean", values: curves.staleness_mean },
      { label: "oldest", values: curves.staleness_max },
    ],
    bound: bound === null ? undefined : { value: bound, label: "bound" },
    low: 0,
    whole: true,
    format: (value, tick) => fixed(value, tick ? 0 : 2),
  };
}

export function clipChart(curves) {
  return {
    title: "Clipped tokens",
    series: [
      { label: "above", values: curves.clip_high },
      { label: "below", values: curves.clip_low },
    ],
    low: 0,
    format: (value) => percent(value),
  };
}
