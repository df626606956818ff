// The overview of a run: alerts first, then headline figures, curves, activity and running episodes.

import { h, replace } from "../../dom.js";
import { clock, count, duration, fixed, milliseconds, percent, plural, words } from "../../format.js";
import { getJson, ofRun } from "../api.js";
import { Chart } from "../components/chart.js";
import { activityPanel } from "./activity.js";
import { formatOf } from "../components/metrics.js";
import { copyable, empty, facts, failure, panel, rewardCell, show, signed, table } from "../components/elements.js";
import { address } from "../router.js";
import { recordingName, trajectoryOf } from "../ids.js";

const ACTIVITY_MS = 10_000;
const WORST = 6;
const RUNNING = 8;
const CURVES = [
  {
    title: "Reward and pass rate",
    series: [
      { label: "reward", name: "reward_mean" },
      { label: "pass", name: "pass_rate" },
    ],
    low: 0,
  },
  { title: "Loss", series: [{ label: "loss", name: "loss" }] },
  { title: "Entropy", series: [{ label: "entropy", name: "entropy" }] },
  {
    title: "Token staleness",
    series: [
      { label: "mean", name: "staleness_mean" },
      { label: "oldest", name: "staleness_max" },
    ],
    low: 0,
    bounded: true,
  },
  {
    title: "Clipped tokens",
    series: [
      { label: "above", name: "clip_high" },
      { label: "below", name: "clip_low" },
    ],
    low: 0,
  },
  {
    title: "Tokens per second",
    series: [
      { label: "sampled", name: "tokens_per_s_sampled" },
      { label: "trained", name: "tokens_per_s_trained" },
    ],
    low: 0,
  },
];

export function overviewView({ run, signal }) {
  const view = new Overview(run, signal);
  view.load();
  return { title: "", element: view.element, refresh: () => view.load(), close: () => view.close() };
}

class Overview {
  charts = null;
  activityAt = 0;

  constructor(run, signal) {
    this.run = run;
    this.signal = signal;
    this.top = h("div", { class: "state" }, "Reading the run …");
    this.curves = h("div", { class: "curves" });
    this.suspects = h("div", {});
    this.worst = h("div", {});
    this.running = h("div", {});
    this.about = h("div", {});
    this.element = h("div", { class: "overview" }, this.top);
  }

  async load() {
    try {
      const [state, head] = await Promise.all(
        ["state", "head"].map((what) => getJson(ofRun(this.run, what), this.signal)),
      );
      if (state.empty) replace(this.element, nothingYet(state));
      else this.draw(state, head);
    } catch (error) {
      const away = error.status === 0 && this.charts; // the bar says so, and what was there stays
      if (error.name !== "AbortError" && !away) replace(this.element, failure(error));
    }
  }

  draw(state, head) {
    if (!this.charts) this.build(state);
    replace(this.alerts, ...state.alerts.map(alert));
    this.alerts.hidden = !state.alerts.length;
    replace(this.phases, ...phases(state));
    replace(this.cards, ...cards(state));
    for (const chart of this.charts) chart.update(state.curves);
    replace(this.suspects, suspectsTable(this.run, state));
    this.suspicious.hidden = !state.suspects.length;
    replace(this.running, runningTable(this.run, state));
    replace(this.about, ...about(state));
    this.steer(head, state.running_count);
    show(
      this.worst,
      () => getJson(ofRun(this.run, "trajectories", { step: "last", sort: "worst", limit: WORST }), this.signal),
      (page) => worstTable(this.run, page),
    );
    if (Date.now() - this.activityAt > ACTIVITY_MS) {
      this.activityAt = Date.now();
      this.activity.refresh();
    }
  }

  build(state) {
    this.alerts = h("ul", { class: "alerts", "aria-label": "Alerts" });
    this.phases = h("ol", { class: "phases", "aria-label": "Phases" });
    this.cards = h("section", { class: "cards", "aria-label": "Now" });
    this.charts = CURVES.map(
      (spec) =>
        new Chart({
          ...spec,
          format: formatOf(spec.series.at(-1).name),
          bound: spec.bounded ? state.run.max_staleness : undefined,
        }),
    );
    replace(this.curves, ...this.charts.map((chart) => chart.element));
    this.activity = activityPanel(this.run, this.signal);
    this.activityAt = Date.now();
    const all = h("a", { class: "button small right", href: address(this.run, "curves") }, "All curves");
    const terminals = h("a", { class: "button small right", href: address(this.run, "terminals") }, "Watch");
    const worst = h(
      "a",
      { class: "button small right", href: address(this.run, "trajectories", "", { step: "last", sort: "worst" }) },
      "All trajectories of the step",
    );
    this.suspicious = panel("Needs a look", { note: "signs of cheating" }, this.suspects);
    this.commands = h("div", {});
    this.element.classList.add("stack");
    replace(
      this.element,
      this.alerts,
      this.phases,
      this.cards,
      this.suspicious,
      panel("Curves", { tools: [all] }, this.curves),
      this.activity.element,
      h(
        "div",
        { class: "columns" },
        panel("Worst of the last step", { tools: [worst] }, this.worst),
        panel("Running now", { tools: [terminals] }, this.running),
      ),
      h(
        "div",
        { class: "columns" },
        panel("About this run", {}, this.about),
        this.commands,
      ),
    );
  }

  // Redrawn only if it has changed, so that a command that is being copied stays.
  steer(head, running) {
    if (this.status === head.status) return;
    this.status = head.status;
    replace(this.commands, controlCommands(head, running));
  }

  close() {
    for (const chart of this.charts ?? []) chart.close();
  }
}

function nothingYet({ reading }) {
  const damaged = reading.damaged ? `All ${reading.lines} lines in its files are damaged. ` : "";
  return empty(
    "This run has not recorded anything yet.",
    `${damaged}The page updates when the run writes its first event.`,
  );
}

function alert({ name: what, text, health, since }) {
  return h(
    "li",
    { class: health ? "health" : "" },
    h("b", {}, words(what)),
    h("span", {}, text),
    h("time", {}, `since ${clock(since)}`),
  );
}

function phases(state) {
  const spans = new Map(state.phases.map((span) => [span.name, span]));
  const current = state.run.finished_at === null ? state.phases.at(-1)?.name : null;
  return state.order.map((name) => {
    const span = spans.get(name);
    const now = name === current;
    const done = !span ? 0 : !now ? 1 : span.total ? span.done / span.total : 0.5;
    const took = span?.until
      ? ` · ${duration(span.until - span.since)}`
      : now && span.total
        ? ` · ${count(span.done)} of ${count(span.total)}`
        : "";
    const track = h("span", { class: "track" }, h("i", { width: `${100 * Math.min(1, done)}%` }));
    return h(
      "li",
      { class: `${name} ${now ? "now" : span ? "done" : ""}`, title: span?.detail || undefined },
      track,
      h("span", {}, `${words(name)}${took}`),
    );
  });
}

function cards(state) {
  const { latest, curves, sandboxes, tokens, totals, run } = state;
  const dropped = Object.values(totals.dropped).reduce((sum, value) => sum + value, 0);
  const over = run.max_staleness !== null && latest.staleness_max > run.max_staleness;
  const bound = run.max_staleness === null ? "no bound" : `bound ${run.max_staleness}`;
  const blocked = state.blocked_share
    ? `offloaded ${percent(state.blocked_share, 0)} of the time`
    : `${plural(state.published, "set")} of weights`;
  const masked = tokens.masked ? `${count(tokens.masked)} tokens masked` : "no tokens masked";
  return [
    card(
      "Reward",
      fixed(latest.reward_mean),
      change(curves.reward_mean, (value) => signed(value)),
    ),
    card(
      "Pass rate",
      percent(latest.pass_rate, 0),
      change(curves.pass_rate, (value) => `${signed(100 * value, 0)} points`),
    ),
    card(
      "Sampled",
      count(latest.tokens_per_s_sampled),
      `${count(latest.tokens_per_s_trained)} tokens/s trained`,
      "tokens/s",
    ),
    card(
      "Token staleness",
      fixed(latest.staleness_mean, 1),
      h("span", { class: over ? "bad" : "" }, `oldest ${fixed(latest.staleness_max, 0)}, ${bound}`),
      "steps",
    ),
    card("Weight update pause", milliseconds(latest.pause_ms), blocked),
    card(
      "Sandboxes",
      count(sandboxes.live),
      imageNote(state.images) ?? `${sandboxes.waiting} waiting · ${count(sandboxes.started)} started`,
      "live",
    ),
    card("Trained", count(totals.trained), h("span", { title: masked }, `${count(dropped)} dropped`)),
  ];
}

function imageNote(images) {
  if (!images || images.ready + images.failed >= images.tasks) return null;
  const title = `images: ${images.ready} of ${images.tasks} ready, ${images.failed} failed`;
  return h("span", { title, class: images.failed ? "bad" : "" }, `images: ${images.ready} of ${images.tasks}`);
}

function card(label, value, sub, unit) {
  return h(
    "div",
    { class: "panel card" },
    h("p", { class: "label" }, label),
    h("p", { class: "value" }, value, unit && h("small", {}, unit)),
    h("p", { class: "sub" }, sub),
  );
}

function change(values, format) {
  const known = values.filter(Number.isFinite);
  if (known.length < 6) return "";
  const mean = (part) => part.reduce((sum, value) => sum + value, 0) / part.length;
  return `${format(mean(known.slice(-3)) - mean(known.slice(0, 3)))} so far`;
}

function worstTable(run, page) {
  if (!page.rows.length) return empty("No optimizer step yet.");
  const columns = [
    {
      title: "trajectory",
      kind: "text",
      cell: (row) => h("a", { class: "open", "data-row": true, href: address(run, "trajectories", row.id) }, row.id),
    },
    { title: "task", kind: "text", hide: "wide-only", cell: (row) => h("span", { class: "name" }, row.task) },
    { title: "ended", kind: "text", cell: (row) => words(row.status) },
    { title: "reward", cell: (row) => rewardCell(row.reward) },
  ];
  return table(columns, page.rows, { label: "Worst of the last step" });
}

function suspectsTable(run, { suspects, totals }) {
  const columns = [
    {
      title: "trajectory",
      kind: "text",
      cell: ({ trajectory }) =>
        h(
          "a",
          { class: "open", "data-row": true, href: address(run, "trajectories", trajectoryOf(trajectory)) },
          trajectoryOf(trajectory),
        ),
    },
    { title: "task", kind: "text", hide: "wide-only", cell: (session) => h("span", { class: "name" }, session.task) },
    { title: "why", kind: "text", cell: ({ detail }) => h("span", { class: "name", title: detail }, detail) },
    { title: "reward", cell: (session) => rewardCell(session.reward) },
  ];
  const more = totals.suspicious - suspects.length;
  return h(
    "div",
    {},
    table(columns, suspects, { label: "Episodes with signs of cheating" }),
    more > 0 && h("p", { class: "note" }, `and ${count(more)} earlier`),
  );
}

function runningTable(run, { running, running_count: total }) {
  if (!running.length) return empty("No episode is running.");
  const columns = [
    {
      title: "episode",
      kind: "text",
      cell: (session) =>
        h(
          "a",
          { class: "open", "data-row": true, href: address(run, "terminals", "", { only: recordingName(session) }) },
          trajectoryOf(session.trajectory),
        ),
    },
    { title: "task", kind: "text", hide: "wide-only", cell: (session) => h("span", { class: "name" }, session.task) },
    { title: "turn", cell: (session) => String(session.turn) },
    {
      title: "at",
      kind: "text",
      cell: (session) => h("span", { class: "name mono", title: session.command }, session.command || "thinking"),
    },
  ];
  const shown = [...running].reverse().slice(0, RUNNING);
  const more = total - shown.length;
  return h(
    "div",
    {},
    table(columns, shown, { label: "Running episodes" }),
    more > 0 && h("p", { class: "note" }, `and ${more} more`),
  );
}

function about(state) {
  const { run, evaluations, engines, totals, nodes, workers } = state;
  const failed = Object.entries(totals.failed)
    .map(([reason, times]) => `${words(reason)} ${times}`)
    .join(", ");
  const dropped = Object.entries(totals.dropped)
    .map(([reason, times]) => `${words(reason)} ${count(times)}`)
    .join(", ");
  return [
    facts([
      ["recipe", run.recipe],
      ["mode", run.mode && words(run.mode)],
      ["flow", run.flow === "run" ? "" : words(run.flow)],
      ["nodes, workers", `${nodes}, ${workers}`],
      ["seed", run.seed === null ? "" : String(run.seed)],
      ["starts", run.starts > 1 ? String(run.starts) : ""],
      ["began", run.started_at ? new Date(run.started_at * 1000).toLocaleString("en-GB") : ""],
      ["reason", run.reason],
      ...evaluations.map((each) => [
        `pass@1 ${each.name}`,
        `${percent(each.pass_at_1)} ± ${percent(each.stderr ?? NaN)} of ${each.n}`,
      ]),
      ...engines.map((each) => [
        each.name,
        `${words(each.state)}, weights ${each.version}, ${plural(each.loads, "load")}`,
      ]),
      ["dropped", dropped],
      ["infrastructure failures", failed],
      ["process deaths", totals.deaths ? String(totals.deaths) : ""],
      [
        "lost events, damaged lines",
        totals.lost_events + state.reading.damaged ? `${totals.lost_events}, ${state.reading.damaged}` : "",
      ],
    ]),
  ];
}

// Commands to type, as this page is read-only.  The retune example halves the running episodes.
function controlCommands({ status, directory, resume_command: goOn }, running) {
  const of = `longshore ctl ${directory}`;
  const commands = {
    running: [
      `${of} status`,
      `${of} pause --reason "…"`,
      `${of} retune in_flight=${Math.max(1, Math.floor(running / 2))}`,
      `${of} resume`,
      `${of} stop`,
    ],
    stopped: [goOn, `${of} status`],
  }[status] ?? [`${of} status`];
  const note = {
    running: "this page is read-only; type these commands",
    stopped: "no driver is running; the first command resumes the run",
    finished: "this run has finished",
    failed: "this run has finished, but one of its checks failed",
    damaged: "the configuration of this run cannot be read",
  }[status];
  return panel("Steer", { note }, h("div", { class: "stack tight" }, ...commands.map(copyable)));
}
