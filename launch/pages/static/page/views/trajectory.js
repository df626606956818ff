// One trajectory: its turns next to its terminal, its reward, and its tokens.

import { h, replace } from "../../dom.js";
import { count, duration, fixed, milliseconds, words } from "../../format.js";
import { getJson, getText, ofRun, pictureSource, saved } from "../api.js";
import { exportLink } from "../components/exports.js";
import {
  empty,
  facts,
  failure,
  loading,
  panel,
  passBadge,
  copyable,
  signed,
  stateBadge,
  statusText,
} from "../components/elements.js";
import { Recording } from "../components/recording.js";
import { address } from "../router.js";
import { TokenView } from "./tokens.js";

const HUES = ["teal", "blue", "violet", "amber", "rose", "slate"];
const LONG = 900;
const narrow = matchMedia("(max-width: 1000px)");
const SUMS = new Set(["total"]);
const WHY = {
  auxiliary: "The harness asked this beside the agent's work, and went on without the reply",
  discarded: "The harness threw this reply away and asked again with the same prompt",
};

export function trajectoryView(context) {
  const view = new TrajectoryPage(context);
  view.load();
  return { title: context.id, element: view.element, close: () => view.close(), keys: (key) => view.key(key) };
}

class TrajectoryPage {
  current = -1;
  turns = []; // those with a place: {turn, segment, element}
  shown = []; // turns with pictures: {index, numbers}

  constructor(context) {
    Object.assign(this, context);
    this.element = h("div", { class: "stack" }, loading(8));
  }

  path(rest = "") {
    return ofRun(this.run, `trajectories/${encodeURIComponent(this.id)}${rest}`);
  }

  async load() {
    try {
      this.detail = await getJson(this.path(), this.signal);
    } catch (error) {
      if (error.name !== "AbortError") replace(this.element, failure(error), this.elsewhere(error));
      return;
    }
    this.draw();
    await this.play();
  }

  elsewhere({ status }) {
    if (status !== 404 || saved) return null;
    const link = (text, page, query) => h("a", { class: "button", href: address(this.run, page, "", query) }, text);
    return h(
      "p",
      { class: "filters" },
      link("All trajectories", "trajectories"),
      link("Running terminals", "terminals", {}),
    );
  }

  draw() {
    const { row, segments } = this.detail;
    this.screen = h("div", { class: "recording" }, h("p", { class: "state" }, "Reading the recording …"));
    this.marks = h("div", { class: "marks", role: "group", "aria-label": "Turns of the recording" });
    this.tokens = new TokenView({ ...this, path: (rest) => this.path(rest) }, this.detail);
    const turnList = this.drawTurns(segments);
    const side = h(
      "div",
      { class: "side" },
      this.pagePanel(),
      panel("Terminal", { note: this.recordingNote() }, this.screen, this.marks),
      ...this.verdict(),
    );
    const turns = panel(
      "Turns",
      { note: [`${count(row.tokens)} tokens, ${count(row.sampled)} sampled`, ...asidesOf(segments)].join(", ") },
      turnList,
    );
    replace(
      this.element,
      this.head(),
      h("div", { class: "trajectory" }, h("div", {}, this.task(), turns), side),
      this.tokens.element,
    );
  }

  head() {
    const { row, size } = this.detail;
    const group = h(
      "a",
      { href: address(this.run, "groups", row.group), class: "button", "data-key": "g" },
      `Group ${row.group}`,
    );
    const tools = saved
      ? [this.inFile("groups", row.group) && group]
      : [group, ...this.neighbours(row, size), exportLink(this.run, "trajectories", row.id)];
    const note = [
      `sample ${row.sample} of ${size}`,
      row.step !== null && `step ${row.step}`,
      row.attempt > 0 && `attempt ${row.attempt}`,
    ]
      .filter(Boolean)
      .join(" · ");
    return h(
      "div",
      { class: "title" },
      h("h1", {}, row.task),
      passBadge(row.passed),
      stateBadge(row.state, row.reason),
      h("p", { class: "note" }, `${row.id} · ${note}`),
      h("div", { class: "right" }, ...tools.filter(Boolean)),
    );
  }

  inFile(kind, id) {
    return ofRun(this.run, `${kind}/${encodeURIComponent(id)}`) in saved.answers;
  }

  neighbours(row, size) {
    const to = (sample) => row.id.replace(/-s\d+$/, `-s${String(sample).padStart(2, "0")}`);
    const link = (sample, text, key, label) =>
      sample >= 0 &&
      sample < size &&
      h(
        "a",
        {
          class: "button",
          href: address(this.run, "trajectories", to(sample)),
          "data-key": key,
          "aria-label": label,
        },
        text,
      );
    return [link(row.sample - 1, "←", "[", "Previous sample"), link(row.sample + 1, "→", "]", "Next sample")];
  }

  recordingNote() {
    const { recording } = this.detail;
    return recording ? (recording.live ? "recording" : "pauses are shortened") : "";
  }

  task() {
    const { instruction, error } = this.detail;
    return panel(
      "Task",
      {},
      h("p", { class: "instruction" }, instruction || "The instruction was not recorded."),
      error && h("p", { class: "error" }, error),
    );
  }

  // The page that the agent's browser showed after the current turn, larger than beside its action.
  pagePanel() {
    if (!this.shown.length) return null;
    this.pageImage = h("img", { class: "page-picture", alt: "" });
    this.pageNote = h("p", { class: "note" });
    this.showPage(this.shown.at(-1));
    return panel("Page", {}, this.pageImage, this.pageNote);
  }

  showPage({ index, numbers }) {
    this.pageImage.src = this.picture(numbers.at(-1));
    const when = whenShown(index);
    this.pageImage.alt = `The page ${when}`;
    this.pageNote.textContent = `What the browser showed ${when}.`;
  }

  picture(number) {
    return pictureSource(this.path(`/pictures/${number}`)) ?? "";
  }

  // Small pictures beside an action, each of which opens in the panel.
  thumbnails({ index, pictures }) {
    const known = pictures.filter((number) => this.picture(number));
    if (!known.length) return null;
    this.shown.push({ index, numbers: known });
    const button = (number) =>
      h(
        "button",
        {
          type: "button",
          "aria-label": `Show the page ${whenShown(index)}`,
          onclick: () => this.showPage({ index, numbers: [number] }),
        },
        h("img", { src: this.picture(number), alt: "", loading: "lazy" }),
      );
    return h("div", { class: "pictures" }, ...known.map(button));
  }

  drawTurns(segments) {
    this.turns = [];
    this.shown = [];
    const list = h("ol", { class: "turns" });
    segments.forEach((segment, number) => {
      if (segments.length > 1) list.append(h("li", { class: "note" }, segmentTitle(segment, number)));
      for (const turn of segment.turns) list.append(this.turn(turn, number));
    });
    this.turns.sort((one, other) => one.at - other.at);
    return segments.length ? list : empty("No turns.");
  }

  turn(turn, segment) {
    const played = turn.at_s !== null && turn.at_s !== undefined;
    const choose = () => (played ? this.recording?.seek(turn.at_s) : this.mark(element));
    const head = h(
      "button",
      {
        type: "button",
        class: "turn-head",
        onclick: choose,
        title: played ? "Show in the terminal" : undefined,
      },
      ...headOf(turn),
    );
    const body = h("pre", {}, turn.text);
    const foot = h("div", { class: "turn-foot" }, ...this.footOf(turn, segment, body));
    if (turn.text.length > LONG || turn.kind === "prompt") body.classList.add("short");
    const kind = `turn ${turn.kind} ${turn.role && "aside"}`;
    const pictures = this.thumbnails(turn);
    const said = pictures ? h("div", { class: "acted" }, turn.text && body, pictures) : turn.text && body;
    const element = h("li", { class: kind, "data-turn": turn.index }, head, said, foot);
    if (played) this.turns.push({ at: turn.at_s, index: turn.index, element });
    return element;
  }

  footOf(turn, segment, body) {
    const fold = (event) => {
      event.target.textContent = body.classList.toggle("short") ? "Show all" : "Show less";
    };
    const tokens = () => this.tokens.open(segment, turn.start);
    return [
      h(
        "span",
        {},
        `${count(turn.end - turn.start)} tokens${turn.kind === "model" ? `, ${count(turn.trained)} trained` : ""}`,
      ),
      turn.logprob_mean !== null && h("span", {}, `mean log p ${fixed(turn.logprob_mean)}`),
      gapOf(turn),
      turn.staleness_max !== null && h("span", {}, `oldest ${turn.staleness_max}`),
      turn.reward !== 0 && h("span", {}, `reward ${signed(turn.reward)}`),
      turn.cut_chars > 0 && h("span", {}, `${count(turn.cut_chars)} characters left out`),
      (turn.text.length > LONG || turn.kind === "prompt") &&
        h("button", { type: "button", onclick: fold }, "Show all"),
      h("button", { type: "button", onclick: tokens }, "Tokens"),
    ].filter(Boolean);
  }

  verdict() {
    const {
      row,
      directory,
      parts,
      tests,
      ms,
      engine,
      node,
      worker,
      started_at: at,
      trained_version: version,
      max_staleness: bound,
    } = this.detail;
    const reward = panel(
      "Reward",
      { note: fixed(row.reward) },
      facts([
        ...Object.entries(parts).map(([name, value]) => [words(name), fixed(value, 3)]),
        ["advantage", signed(row.advantage, 3)],
        ["ended", statusText(row.status)],
      ]),
    );
    const list = tests.map((test) =>
      h(
        "li",
        { class: test.passed ? "yes" : "no" },
        h("i", { "aria-label": test.passed ? "passed" : "failed" }, test.passed ? "✓" : "✗"),
        h("span", {}, test.name),
        test.weight !== 1 && h("span", { class: "weight" }, `weight ${test.weight}`),
      ),
    );
    const passed = tests.filter((test) => test.passed).length;
    const checks = panel(
      "Tests",
      { note: tests.length ? `${passed} of ${tests.length} passed` : "" },
      tests.length
        ? h("ul", { class: "tests" }, ...list)
        : h("p", { class: "note" }, "No test results were recorded."),
    );
    const where = [
      ["began", at ? new Date(at * 1000).toLocaleString("en-GB") : ""],
      ["engine", engine],
      ["worker", [worker, node].filter(Boolean).join(" on ")],
      ["trained weights", version],
      ["max staleness", bound === null ? "" : String(bound)],
      ["mean gap", fixed(row.logprob_gap, 4)],
    ];
    const again = !saved && copyable(`longshore replay ${directory}/${row.id}`);
    return [
      h("div", { class: "columns" }, reward, checks),
      panel("Time", { note: duration((ms.total ?? 0) / 1000) }, stages(ms), facts(where), again),
    ];
  }

  async play() {
    const { recording } = this.detail;
    if (!recording)
      return replace(
        this.screen,
        h("p", { class: "state" }, "No terminal was recorded, or its recording was deleted."),
      );
    this.recording = new Recording(this.screen, (seconds) => this.follow(seconds));
    try {
      this.recording.load(
        await getText(ofRun(this.run, `recordings/${encodeURIComponent(recording.name)}`), this.signal),
      );
    } catch (error) {
      if (error.name !== "AbortError") replace(this.screen, h("p", { class: "state" }, error.message));
      return;
    }
    const jump = ({ at, index }) =>
      h(
        "button",
        {
          type: "button",
          "data-mark": index,
          "aria-label": `Turn ${index + 1}`,
          onclick: () => this.recording.seek(at),
        },
        String(index + 1),
      );
    replace(this.marks, ...this.turns.filter(({ index }) => index >= 0).map(jump));
  }

  // Highlights the turn at the recording's current time.
  follow(seconds) {
    const here = this.turns.filter(({ at }) => at <= seconds + 0.001).at(-1);
    if (here) this.mark(here.element);
    for (const button of this.marks.children)
      button.setAttribute("aria-current", String(Number(button.dataset.mark) === here?.index));
  }

  mark(element) {
    if (this.marked === element) return;
    this.marked?.classList.remove("current");
    this.marked = element;
    element.classList.add("current");
    const page = this.shown.find(({ index }) => index === Number(element.dataset.turn));
    if (page) this.showPage(page);
    if (narrow.matches) return; // the terminal is above, and would leave the screen
    const { top, bottom } = element.getBoundingClientRect();
    if (top < 110 || bottom > innerHeight) element.scrollIntoView({ block: "nearest" });
  }

  key(key) {
    if (key === " ") this.recording?.toggle();
    else if (key === "n" || key === "p") this.stepTurn(key === "n" ? 1 : -1);
    else return false;
    return true;
  }

  stepTurn(by) {
    const at = this.turns.findIndex(({ element }) => element === this.marked);
    const next = this.turns[Math.min(this.turns.length - 1, Math.max(0, at + by))];
    if (next) this.recording?.seek(next.at);
  }

  close() {
    this.recording?.close();
    this.tokens?.close();
  }
}

const whenShown = (index) => (index < 0 ? "at first" : `after turn ${index + 1}`);

function headOf(turn) {
  const name = turn.kind === "model" ? `Turn ${turn.index + 1}` : words(turn.kind);
  const bad = turn.exit_code !== null && turn.exit_code !== 0;
  return [
    h("b", {}, name[0].toUpperCase() + name.slice(1)),
    turn.tool && h("span", {}, words(turn.tool)),
    turn.exit_code !== null && h("span", { class: bad ? "why" : "" }, `exit ${turn.exit_code}`),
    turn.role && h("span", { class: "badge", title: WHY[turn.role] }, turn.role),
    turn.malformed && h("span", { class: "why" }, "malformed"),
    turn.mixed_prefix && h("span", { class: "why" }, "mixed prefix"),
    turn.cuts > 0 && h("span", { class: "why" }, `cut ${turn.cuts}×`),
    h(
      "span",
      { class: "right" },
      [
        turn.version && turn.kind === "model" && turn.version,
        turn.ms > 0 && milliseconds(turn.ms),
        turn.at_s !== null && `at ${fixed(turn.at_s, 1)} s`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  ];
}

function asidesOf(segments) {
  const roles = segments.flatMap(({ turns }) => turns.map(({ role }) => role));
  const counts = Object.keys(WHY).map((role) => [role, roles.filter((other) => other === role).length]);
  return counts.filter(([, replies]) => replies).map(([role, replies]) => `${count(replies)} ${role}`);
}

function segmentTitle(segment, number) {
  const from =
    segment.parent >= 0 ? `, continues segment ${segment.parent + 1} after ${count(segment.offset)} tokens` : "";
  return `Segment ${number + 1}: ${count(segment.length)} tokens${from}`;
}

function stages(ms) {
  const parts = Object.entries(ms).filter(([name, value]) => !SUMS.has(name) && value > 0);
  if (!parts.length) return h("p", { class: "note" }, "No timings were recorded.");
  const bar = parts.map(([name, value], index) => {
    const part = h("i", { title: `${words(name)} ${milliseconds(value)}` });
    part.style.flexGrow = String(value);
    part.style.background = `var(--${HUES[index % HUES.length]})`;
    return part;
  });
  const legend = parts.map(([name, value], index) => {
    const mark = h("i", {});
    mark.style.background = `var(--${HUES[index % HUES.length]})`;
    return h("span", {}, mark, `${words(name)} ${milliseconds(value)}`);
  });
  return h("div", {}, h("div", { class: "stages" }, ...bar), h("p", { class: "legend" }, ...legend));
}

function gapOf({ logprob_gap_mean: mean, logprob_gap_max: most }) {
  return mean !== null && h("span", {}, `log-prob gap ${fixed(mean, 3)}, at most ${fixed(most, 3)}`);
}
