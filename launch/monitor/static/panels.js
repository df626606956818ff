// The page's panels: state in, elements out.

import { drawCurve, drawSpark } from "./curve.js";
import { h, replace } from "./dom.js";
import { clock, count, duration, fixed, milliseconds, percent, plural, words } from "./format.js";

const PHASE_NAMES = { nodes: "nodes", engine: "engine", model: "model", warm_start: "warm start", eval_before: "eval before", training: "training", eval_after: "eval after", done: "done" };
const QUIET_S = 60;

export function runStatus(state, connected) {
  const quiet = Date.now() / 1000 - (state.last_event_at ?? 0);
  if (state.phase === "done") return ["finished", "done"];
  if (state.phase === "stopped") return ["stopped", "bad"];
  if (!connected) return ["monitor away", "warn"];
  if (state.last_event_at === null) return ["waiting", "warn"];
  return quiet > QUIET_S ? [`quiet for ${duration(quiet)}`, "warn"] : ["live", "live"];
}

export function drawHeader(state, connected) {
  const { run } = state;
  const [label, kind] = runStatus(state, connected);
  document.title = `${run.steps ? `${state.step}/${run.steps} · ` : ""}${run.id} · longshore`;
  document.getElementById("run-id").textContent = run.id;
  const end = run.finished_at ?? (kind === "live" ? Date.now() / 1000 : state.last_event_at);
  const facts = [run.recipe && `recipe ${run.recipe}`, run.mode && words(run.mode), run.nodes && plural(run.nodes, "node"), run.seed !== null && `seed ${run.seed}`,
    run.started_at && `${kind === "live" ? "running" : "ran"} ${duration(end - run.started_at)}`, run.attempts > 1 && `attempt ${run.attempts}`];
  replace(document.getElementById("run-facts"), ...facts.filter(Boolean).map((fact) => h("span", {}, fact)));
  const pill = document.getElementById("pill");
  pill.textContent = label;
  pill.className = `pill ${kind}`;
  pill.title = run.reason;
  replace(document.getElementById("steps"), "step ", h("b", {}, String(state.step)), run.steps ? ` of ${run.steps}` : "");
  drawPhases(state);
}

function drawPhases(state) {
  const spans = new Map(state.phases.map((span) => [span.name, span]));
  const current = state.phases.at(-1);
  const ended = state.run.finished_at !== null;
  const items = state.order.map((name) => {
    const span = spans.get(name);
    const now = span !== undefined && span === current && !ended;
    const share = !span ? 0 : !now ? 1 : span.total ? span.done / span.total : 0.5;
    const took = span && span.until ? duration(span.until - span.since) : now && span.total ? `${count(span.done)} / ${count(span.total)}` : "";
    const fill = h("span", { class: "fill", width: `${100 * share}%` });
    return h("li", { class: `${name} ${now ? "now" : span ? "done" : ""}`, title: span?.detail ?? "" },
      h("span", { class: "track" }, fill), h("span", {}, PHASE_NAMES[name] ?? words(name), took && name !== "done" ? h("small", {}, took) : ""));
  });
  const wide = current ? `${PHASE_NAMES[current.name] ?? words(current.name)}${current.detail ? `: ${current.detail}` : ""}` : "waiting for the first event";
  const list = document.getElementById("phases");
  list.style.gridTemplateColumns = state.order.map((name) => (name === "training" ? "3fr" : "1fr")).join(" ");
  replace(list, ...items, h("li", { class: "wide" }, wide));
}

export function drawCards(box, state) {
  const { latest, totals, tokens, run, curves } = state;
  const engines = state.engines;
  const pause = engines.length ? Math.max(...engines.map((engine) => engine.pause_ms ?? NaN).filter(Number.isFinite)) : NaN;
  const worst = Math.max(0, ...engines.map((engine) => engine.pause_ms_max));
  const dropped = Object.values(totals.dropped).reduce((sum, value) => sum + value, 0);
  const bound = run.age_bound;
  const over = bound !== null && latest.age_max > bound;
  const handled = tokens.trained + tokens.masked;
  replace(box,
    card("Reward", fixed(latest.reward_mean), "", change(curves.reward_mean, (value) => fixed(value)), curves.reward_mean, 0),
    card("Pass rate", percent(latest.pass_rate, 0), "", change(curves.pass_rate, (value) => `${fixed(100 * value, 0)} points`), curves.pass_rate, 0),
    card("Sampled tokens", count(latest.tokens_per_s_sampled), "/s", `${count(latest.tokens_per_s_trained)} /s trained`, curves.tokens_per_s_sampled, 0),
    card("Token age", fixed(latest.age_mean, 1), "steps", [`oldest ${fixed(latest.age_max, 0)}`, bound === null ? "" : h("span", { class: over ? "bad" : "good" }, ` · bound ${fixed(bound, 0)}`)], curves.age_mean, 0),
    card("Engine pause", milliseconds(pause), "", worst ? `longest ${milliseconds(worst)}` : "no load yet", curves.pause_ms, 0),
    card("Sandboxes live", count(state.sandboxes.live), "", `${state.sandboxes.waiting} waiting · ${count(state.sandboxes.started)} started`, null),
    meterCard("Tokens trained", count(tokens.trained), handled ? [tokens.trained / handled, tokens.masked / handled] : [],
      h("span", { title: "tokens above the age bound" }, `${count(tokens.masked)} masked`), h("span", { title: reasons(totals.dropped) }, `${plural(dropped, "episode")} dropped`)));
}

function card(label, value, unit, sub, values, low) {
  const spark = h("div", { class: "spark" });
  if (values) drawSpark(spark, values, low);
  return h("div", { class: "card" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value, unit && h("small", {}, unit)), h("span", { class: "sub" }, ...[sub].flat()), spark);
}

function meterCard(label, value, shares, sub, below) {
  const bars = shares.map((share, index) => h("i", { class: index ? "masked" : "", width: `${100 * share}%` }));
  return h("div", { class: "card" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value), h("span", { class: "sub" }, sub),
    h("div", { class: "meter" }, ...bars), h("span", { class: "sub" }, below));
}

function reasons(dropped) {
  return Object.entries(dropped).map(([reason, number]) => `${words(reason)}: ${number}`).join("\n") || "none";
}

// The last five steps against the first five.
function change(values, format) {
  const known = values.filter(Number.isFinite);
  if (known.length < 6) return "";
  const mean = (part) => part.reduce((sum, value) => sum + value, 0) / part.length;
  const size = Math.min(5, Math.floor(known.length / 2));
  const rise = mean(known.slice(-size)) - mean(known.slice(0, size));
  return [h("span", { class: rise > 0 ? "good" : "", title: "last five steps against the first five" }, `${rise > 0 ? "+" : "−"}${format(Math.abs(rise))}`)];
}

export function drawCurves(state) {
  const { curves, run } = state;
  const steps = curves.step;
  const common = { steps, from: 0, to: run.steps };
  const marks = [];
  for (const evaluation of state.evaluations) {
    const at = evaluation.name.includes("before") ? "start" : evaluation.name.includes("after") ? "end" : null;
    if (at) marks.push({ at, value: evaluation.pass_at_1, stderr: evaluation.stderr, label: `evaluation ${at === "start" ? "before" : "after"} ${percent(evaluation.pass_at_1)}` });
  }
  drawCurve(document.getElementById("reward"), { ...common, title: "Mean reward", series: [{ label: "reward", values: curves.reward_mean }], low: 0, smooth: true, height: 196, format: (value) => fixed(value) });
  drawCurve(document.getElementById("pass"), { ...common, title: "Pass rate", series: [{ label: "pass rate", values: curves.pass_rate }], marks, low: 0, high: 1, smooth: true, height: 196, format: (value, tick) => percent(value, tick ? 0 : 1) });
}

export function drawSmall(box, state) {
  const { curves, run } = state;
  if (!box.children.length) replace(box, ...[0, 1, 2, 3].map(() => h("div")));
  const common = { steps: curves.step, from: 0, to: run.steps, height: 110 };
  const [age, clip, entropy, time] = [...box.children].map((child) => child.firstElementChild ?? child.appendChild(h("div")));
  const bound = run.age_bound === null ? undefined : { value: run.age_bound, label: "bound" };
  drawCurve(age, { ...common, title: "Token age", series: [{ label: "mean", values: curves.age_mean }, { label: "oldest", values: curves.age_max }], bound, low: 0, whole: true, format: (value, tick) => fixed(value, tick ? 0 : 2) });
  drawCurve(clip, { ...common, title: "Clipped tokens", series: [{ label: "above", values: curves.clip_high }, { label: "below", values: curves.clip_low }], low: 0, format: (value) => percent(value) });
  drawCurve(entropy, { ...common, title: "Entropy", series: [{ label: "nats", values: curves.entropy }], low: 0, format: (value) => fixed(value, 1) });
  drawCurve(time, { ...common, title: "Step time", series: [{ label: "training", values: curves.step_s }, { label: "waiting", values: curves.wait_s }], low: 0, format: (value) => `${fixed(value, 1)} s` });
}

export function drawGroups(box, state, open) {
  const short = { open: "open", ready: "ready", zero_variance: "no variance", infra_short: "too few" };
  document.getElementById("groups-note").textContent = state.groups.length ? "newest first; a bar is a member's reward; grey groups are dropped" : "";
  replace(box, ...state.groups.map((group) => {
    const size = Math.max(group.size, group.members.length);
    const bars = Array.from({ length: size }, (_, sample) => {
      const member = group.members.find((found) => found.sample === sample);
      const known = member && member.reward !== null;
      const bar = h("i", { class: known ? (member.reward > 0 ? "" : "zero") : "empty", height: known ? `${Math.max(6, Math.min(1, member.reward) * 100)}%` : "6%" });
      if (!member?.trajectory) return h("span", {}, bar);
      const title = `sample ${sample}: ${known ? `reward ${fixed(member.reward)}` : "running"}`;
      return h("button", { type: "button", title, "aria-label": title, onclick: () => open(member.trajectory) }, bar);
    });
    const rewards = group.members.map((member) => member.reward).filter(Number.isFinite);
    const mean = rewards.length ? fixed(rewards.reduce((sum, value) => sum + value, 0) / rewards.length) : "";
    const what = group.outcome === "open" ? `${rewards.length} of ${size}` : [mean, short[group.outcome] ?? words(group.outcome)].filter(Boolean).join(" · ");
    return h("div", { class: `group ${group.outcome}` }, h("div", { class: "bars" }, ...bars), h("div", { class: "name", title: group.task }, group.task), h("div", { class: "what" }, what));
  }));
  if (!state.groups.length) replace(box, h("p", { class: "note" }, "Groups appear once training begins."));
}

export function drawLog(box, lines, details) {
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const shown = lines.filter((line) => details || line.level !== "detail").slice(-200);
  replace(box, ...shown.map((line) => h("li", { class: line.level, title: `${line.kind} ${line.node}` }, h("time", {}, clock(line.t)), h("i"), h("span", {}, line.text))));
  if (atEnd) box.scrollTop = box.scrollHeight;
}

export function drawFoot(box, state) {
  const { totals, reading } = state;
  const failed = Object.values(totals.failed).reduce((sum, value) => sum + value, 0);
  const versions = state.engines.map((engine) => `${engine.name} ${engine.state === "serving" ? `serves ${engine.version}` : engine.state}${engine.restarts ? `, restarted ${engine.restarts}×` : ""}`);
  replace(box, h("span", {}, `${count(totals.acked)} acknowledged`), h("span", {}, `${count(totals.superseded)} superseded`),
    h("span", { class: failed ? "warn" : "", title: reasons(totals.failed) }, `${plural(failed, "ticket")} issued again`),
    totals.deaths ? h("span", { class: "warn" }, plural(totals.deaths, "process death")) : "",
    totals.refused_messages ? h("span", { class: "warn" }, `${plural(totals.refused_messages, "message")} refused`) : "",
    totals.rewinds ? h("span", {}, `went back to a checkpoint ${totals.rewinds}×`) : "",
    ...versions.map((text) => h("span", {}, text)), h("span", {}, `${count(reading.lines)} lines from ${plural(reading.files, "file")}`),
    reading.damaged ? h("span", { class: "warn" }, `${plural(reading.damaged, "damaged line")} left out`) : "");
}
