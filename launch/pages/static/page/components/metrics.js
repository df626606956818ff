// Groups, titles and formats of metrics.

import { count, fixed, milliseconds, percent, words } from "../../format.js";

const SHARES = /^(pass_rate|clip_.*|trained_share|.*_share|.*_rate|ess(_.*)?|zero_variance_share)$/;
const GROUPS = [
  ["Reward", /^(reward|pass|part_|judge|turn_reward)/],
  ["Loss and gradient", /^(loss|grad|lr|entropy|update)/],
  ["Clipping", /^clip/],
  ["Divergence", /^(kl|parity|mismatch|ess|ratio|tis|opsm|m2po|correction|gap)/],
  ["Staleness and masking", /^(staleness|sampled_staleness|trained_share|masked|trained_tokens|dropped)/],
  ["Throughput", /(tokens_per_s|_s$|^seconds|pause|tokens|mfu|bytes)/],
];
const OTHER = "Other";

export const groupNames = [...GROUPS.map(([name]) => name), OTHER];

export function groupOf(name) {
  return GROUPS.find(([, pattern]) => pattern.test(name))?.[0] ?? OTHER;
}

export function titleOf(name) {
  const text = words(name)
    .replace(/\bkl\b/, "KL")
    .replace(/\blr\b/, "learning rate")
    .replace(/ per s\b/, "/s")
    .replace(/ (ms|s)$/, ", $1");
  return text[0].toUpperCase() + text.slice(1);
}

export function formatOf(name) {
  if (name.endsWith("_ms")) return (value) => milliseconds(value);
  if (SHARES.test(name))
    return (value, tick) =>
      tick
        ? `${number(100 * value)} %`
        : percent(value, Math.abs(value) >= 0.1 ? 0 : Math.abs(value) >= 0.01 || value === 0 ? 1 : 2);
  return number;
}

// A number with about three significant digits.
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e4) return count(value);
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 0.01 || size === 0)
    return fixed(value, size >= 10 ? 1 : size >= 1 ? 2 : 3)
      .replace(/(\.\d*?)0+$/, "$1")
      .replace(/\.$/, "");
  return value.toExponential(1);
}
