// The page's panels: state in, elements out.

import { ageChart, clipChart, passChart, rewardChart } from "./charts.js";
import { drawCurve, drawSpark } from "./curve.js";
import { h, replace } from "./dom.js";
import { clock, count, duration, fixed, milliseconds, percent, plural, words } from "./format.js";

const QUIET_S = 60;
const OUTCOMES = { open: "open", ready: "ready", zero_variance: "no variance", infra_short: "too few" };
const byId = (id) => document.getElementById(id);
const total = (counts) => Object.values(counts).reduce((sum, value) => sum + value, 0);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// -- header ----------------------------------------------------------------------------------------------------------

export function runStatus(state, connected) {
  const quiet = Date.now() / 1000 - (state.last_event_at ?? 0);
  if (state.phase === "done") return ["finished", "done"];
  if (state.phase === "stopped") return ["stopped", "bad"];
  if (!connected) return ["monitor away", "warn"];
  if (state.run.flow !== "run") return [state.run.flow === "pause" ? "paused" : "draining", "warn"];
  if (state.last_event_at === null) return ["waiting", "warn"];
  return quiet > QUIET_S ? [`quiet for ${duration(quiet)}`, "warn"] : ["live", "live"];
}

export function drawHeader(state, connected) {
  const { run } = state;
  const [label, kind] = runStatus(state, connected);
  document.title = `${run.steps ? `${state.step}/${run.steps} · ` : ""}${run.id} · longshore`;
  byId("run-id").textContent = run.id;
  replace(byId("run-facts"), ...runFacts(state, kind === "live").map((fact) => h("span", {}, fact)));
  const pill = byId("pill");
  pill.textContent = label;
  pill.className = `pill ${kind}`;
  pill.title = run.reason;
  replace(byId("steps"), "step ", h("b", {}, String(state.step)), run.steps ? ` of ${run.steps}` : "");
  drawPhases(state);
}

function runFacts({ run, last_event_at: lastEventAt }, live) {
  const end = run.finished_at ?? (live ? Date.now() / 1000 : lastEventAt);
  const facts = [
    run.recipe && `recipe ${run.recipe}`,
    run.mode && words(run.mode),
    run.nodes && plural(run.nodes, "node"),
    run.seed !== null && `seed ${run.seed}`,
    run.started_at && `${live ? "running" : "ran"} ${duration(end - run.started_at)}`,
    run.attempts > 1 && `attempt ${run.attempts}`,
  ];
  return facts.filter(Boolean);
}

function drawPhases(state) {
  const spans = new Map(state.phases.map((span) => [span.name, span]));
  const current = state.phases.at(-1);
  const ended = state.run.finished_at !== null;
  const items = state.order.map((name) => phase(name, spans.get(name), !ended && name === current?.name));
  const detail = current?.detail ? `: ${current.detail}` : "";
  const wide = current ? `${words(current.name)}${detail}` : "waiting for the first event";
  const list = byId("phases");
  list.style.gridTemplateColumns = state.order.map((name) => (name === "training" ? "3fr" : "1fr")).join(" ");
  replace(list, ...items, h("li", { class: "wide" }, wide));
}

function phase(name, span, now) {
  const share = !span ? 0 : !now ? 1 : span.total ? span.done / span.total : 0.5;
  const took = name !== "done" && phaseTook(span, now);
  return h(
    "li",
    { class: `${name} ${now ? "now" : span ? "done" : ""}`, title: span?.detail ?? "" },
    h("span", { class: "track" }, h("span", { class: "fill", width: `${100 * share}%` })),
    h("span", {}, words(name), h("small", {}, took || "")),
  );
}

function phaseTook(span, now) {
  if (span?.until) return duration(span.until - span.since);
  return now && span.total ? `${count(span.done)} / ${count(span.total)}` : "";
}

// -- cards -----------------------------------------------------------------------------------------------------------

export function drawCards(box, state) {
  const { latest, curves, sandboxes } = state;
  replace(
    box,
    card({
      label: "Reward",
      value: fixed(latest.reward_mean),
      sub: change(curves.reward_mean, (value) => fixed(value)),
      values: curves.reward_mean,
    }),
    card({
      label: "Pass rate",
      value: percent(latest.pass_rate, 0),
      sub: change(curves.pass_rate, (value) => `${fixed(100 * value, 0)} points`),
      values: curves.pass_rate,
    }),
    card({
      label: "Sampled tokens",
      value: count(latest.tokens_per_s_sampled),
      unit: "/s",
      sub: `${count(latest.tokens_per_s_trained)} /s trained`,
      values: curves.tokens_per_s_sampled,
    }),
    ageCard(state),
    pauseCard(state),
    card({
      label: "Sandboxes live",
      value: count(sandboxes.live),
      sub: `${sandboxes.waiting} waiting · ${count(sandboxes.started)} started`,
    }),
    trainedCard(state),
  );
}

function ageCard({ latest, curves, run }) {
  const bound = run.age_bound;
  const over = bound !== null && latest.age_max > bound;
  const allowed = bound === null ? "" : h("span", { class: over ? "bad" : "good" }, ` · bound ${fixed(bound, 0)}`);
  return card({
    label: "Token age",
    value: fixed(latest.age_mean, 1),
    unit: "steps",
    sub: [`oldest ${fixed(latest.age_max, 0)}`, allowed],
    values: curves.age_mean,
  });
}

function pauseCard({ engines, curves, blocked_share }) {
  if (blocked_share !== null) {
    const sub = `${plural(engines.length, "engine")} aside, of the time`;
    return card({ label: "Learner's turn", value: fixed(100 * blocked_share, 0), unit: "%", sub });
  }
  const pauses = engines.map((engine) => engine.pause_ms ?? NaN).filter(Number.isFinite);
  const worst = Math.max(0, ...engines.map((engine) => engine.pause_ms_max));
  return card({
    label: "Engine pause",
    value: milliseconds(engines.length ? Math.max(...pauses) : NaN),
    sub: worst ? `longest ${milliseconds(worst)}` : "no load yet",
    values: curves.pause_ms,
  });
}

function trainedCard({ tokens, totals }) {
  const handled = tokens.trained + tokens.masked;
  const masked = h("span", { title: "tokens above the age bound" }, `${count(tokens.masked)} masked`);
  const dropped = h("span", { title: reasons(totals.dropped) }, `${plural(total(totals.dropped), "episode")} dropped`);
  const shares = handled ? [tokens.trained / handled, tokens.masked / handled] : [];
  const bars = shares.map((share, index) => h("i", { class: index ? "masked" : "", width: `${100 * share}%` }));
  return h(
    "div",
    { class: "card" },
    h("span", { class: "label" }, "Tokens trained"),
    h("span", { class: "value" }, count(tokens.trained)),
    h("span", { class: "sub" }, masked),
    h("div", { class: "meter" }, ...bars),
    h("span", { class: "sub" }, dropped),
  );
}

function card({ label, value, unit = "", sub, values = null }) {
  const spark = h("div", { class: "spark" });
  if (values) drawSpark(spark, values, 0);
  return h(
    "div",
    { class: "card" },
    h("span", { class: "label" }, label),
    h("span", { class: "value" }, value, unit && h("small", {}, unit)),
    h("span", { class: "sub" }, ...[sub].flat()),
    spark,
  );
}

function reasons(counts) {
  const lines = Object.entries(counts).map(([reason, number]) => `${words(reason)}: ${number}`);
  return lines.join("\n") || "none";
}

// The last five steps against the first five.
function change(values, format) {
  const known = values.filter(Number.isFinite);
  if (known.length < 6) return "";
  const size = Math.min(5, Math.floor(known.length / 2));
  const rise = mean(known.slice(-size)) - mean(known.slice(0, size));
  const title = "last five steps against the first five";
  return h("span", { class: rise > 0 ? "good" : "", title }, `${rise > 0 ? "+" : "−"}${format(Math.abs(rise))}`);
}

// -- curves ----------------------------------------------------------------------------------------------------------

export function drawCurves({ curves, run, step, evaluations }) {
  const common = { steps: curves.step, from: 0, to: lastStep(run, step), height: 196 };
  drawCurve(byId("reward"), { ...common, ...rewardChart(curves) });
  drawCurve(byId("pass"), { ...common, ...passChart(curves, evaluations.flatMap(evaluationMark)) });
}

// Where the curves end: a stop condition may have ended the run before its last step.
function lastStep(run, step) {
  return run.finished_at === null ? run.steps : step;
}

function evaluationMark({ name, pass_at_1: value, stderr, step }) {
  const side = ["before", "after"].find((word) => name.includes(word));
  if (!side) return Number.isFinite(step) ? [{ at: step, value, stderr, label: percent(value) }] : [];
  return [{ at: side === "before" ? "start" : "end", value, stderr, label: `evaluation ${side} ${percent(value)}` }];
}

export function drawSmall(box, { curves, run, step }) {
  if (!box.children.length) replace(box, ...[0, 1, 2, 3].map(() => h("div")));
  const plots = [...box.children].map((child) => child.firstElementChild ?? child.appendChild(h("div")));
  const common = { steps: curves.step, from: 0, to: lastStep(run, step), height: 110 };
  const charts = [ageChart(curves, run.age_bound), clipChart(curves), entropyChart(curves), timeChart(curves)];
  charts.forEach((chart, index) => drawCurve(plots[index], { ...common, ...chart }));
}

function entropyChart(curves) {
  const series = [{ label: "nats", values: curves.entropy }];
  return { title: "Entropy", series, low: 0, format: (value) => fixed(value, 1) };
}

function timeChart(curves) {
  const series = [
    { label: "training", values: curves.step_s },
    { label: "waiting", values: curves.wait_s },
  ];
  return { title: "Step time", series, low: 0, format: (value) => `${fixed(value, 1)} s` };
}

// -- groups ----------------------------------------------------------------------------------------------------------

export function drawGroups(box, { groups }, open) {
  const note = "newest first; a bar is a member's reward; grey groups are dropped";
  byId("groups-note").textContent = groups.length ? note : "";
  if (groups.length) replace(box, ...groups.map((each) => group(each, open)));
  else replace(box, h("p", { class: "note" }, "Groups appear once training begins."));
}

function group(each, open) {
  const size = Math.max(each.size, each.members.length);
  const bars = Array.from({ length: size }, (_, sample) => {
    return bar(sample, each.members.find((member) => member.sample === sample), open);
  });
  return h(
    "div",
    { class: `group ${each.outcome}` },
    h("div", { class: "bars" }, ...bars),
    h("div", { class: "name", title: each.task }, each.task),
    h("div", { class: "what" }, groupResult(each, size)),
  );
}

function bar(sample, member, open) {
  const known = member && member.reward !== null;
  const height = known ? `${Math.max(6, Math.min(1, member.reward) * 100)}%` : "6%";
  const drawn = h("i", { class: known ? (member.reward > 0 ? "" : "zero") : "empty", height });
  if (!member?.trajectory) return h("span", {}, drawn);
  const title = `sample ${sample}: ${known ? `reward ${fixed(member.reward)}` : "running"}`;
  const onclick = () => open(member.trajectory);
  return h("button", { type: "button", title, "aria-label": title, onclick }, drawn);
}

function groupResult({ members, outcome }, size) {
  const rewards = members.map((member) => member.reward).filter(Number.isFinite);
  if (outcome === "open") return `${rewards.length} of ${size}`;
  return [rewards.length ? fixed(mean(rewards)) : "", OUTCOMES[outcome] ?? words(outcome)].filter(Boolean).join(" · ");
}

// -- log and foot ----------------------------------------------------------------------------------------------------

export function drawLog(box, lines, details) {
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const shown = lines.filter((line) => details || line.level !== "detail").slice(-200);
  replace(box, ...shown.map(logLine));
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function logLine({ kind, level, node, t, text }) {
  return h("li", { class: level, title: `${kind} ${node}` }, h("time", {}, clock(t)), h("i"), h("span", {}, text));
}

export function drawFoot(box, { totals, reading, engines }) {
  const failed = total(totals.failed);
  const again = `${plural(failed, "ticket")} issued again`;
  const warn = (number, text) => (number ? h("span", { class: "warn" }, text) : "");
  replace(
    box,
    h("span", {}, `${count(totals.acked)} acknowledged`),
    h("span", {}, `${count(totals.superseded)} superseded`),
    h("span", { class: failed ? "warn" : "", title: reasons(totals.failed) }, again),
    warn(totals.deaths, plural(totals.deaths, "process death")),
    warn(totals.refused_messages, `${plural(totals.refused_messages, "message")} refused`),
    warn(totals.lost_events, `${plural(totals.lost_events, "event")} lost`),
    totals.rewinds ? h("span", {}, `went back to a checkpoint ${totals.rewinds}×`) : "",
    ...engines.map((engine) => h("span", {}, engineLine(engine))),
    h("span", {}, `${count(reading.lines)} lines from ${plural(reading.files, "file")}`),
    warn(reading.damaged, `${plural(reading.damaged, "damaged line")} left out`),
  );
}

function engineLine({ name, state, version, restarts }) {
  const does = state === "serving" ? `serves ${version}` : state;
  return `${name} ${does}${restarts ? `, restarted ${restarts}×` : ""}`;
}
