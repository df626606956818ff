// The terminals panel: pick a session, watch it live, and go on to the next when it ends.

import { h, replace } from "./dom.js";
import { duration, fixed, plural, words } from "./format.js";
import { Player } from "./player.js";
import { Terminal } from "./terminal.js";

const LINGER_MS = 2500;
const MAX_UNSEEN = 999;
const byId = (id) => document.getElementById(id);
const hint = (text) => h("div", { class: "t-dim" }, text);

export class TerminalsPanel {
  list = byId("sessions");
  head = byId("viewer-head");
  screen = byId("screen");
  foot = byId("viewer-foot");
  running = byId("tab-running");
  ended = byId("tab-ended");
  follow = byId("follow");

  state = null;
  tab = "running";
  shown = null; // a trajectory
  source = null; // of one that is watched
  terminal = null;
  seenLines = 0;
  timer = 0;
  player = null; // of one that is replayed
  watched = new Set();
  known = null; // ended before the last look
  unseen = new Set();

  constructor() {
    this.running.addEventListener("click", () => this.choose("running"));
    this.ended.addEventListener("click", () => this.choose("ended"));
    this.follow.addEventListener("change", () => this.follow.checked && this.next());
    this.screen.addEventListener("scroll", () => this.drawFresh());
  }

  update(state) {
    this.state = state;
    this.countUnseen(state.recent.map((session) => session.trajectory));
    if (!state.running.length && this.tab === "running" && state.run.finished_at !== null) this.choose("ended");
    if (this.shown === null) this.next();
    else if (this.source && !this.runs(this.shown)) this.endSoon();
    this.drawList();
    this.drawHead();
  }

  countUnseen(recent) {
    const fresh = recent.filter((trajectory) => this.known && !this.known.has(trajectory));
    for (const trajectory of fresh) if (!this.watched.has(trajectory)) this.unseen.add(trajectory);
    this.known = new Set(recent);
    if (this.unseen.size > MAX_UNSEEN) this.unseen.clear();
  }

  choose(tab) {
    this.tab = tab;
    if (tab === "ended") this.unseen.clear();
    this.drawList();
  }

  find(trajectory) {
    return [...this.state.running, ...this.state.recent].find((session) => session.trajectory === trajectory);
  }

  runs(trajectory) {
    return this.state.running.some((session) => session.trajectory === trajectory);
  }

  // Show the newest session that has something to show; at first, rather one that has ended than none.
  next() {
    const { running, recent } = this.state;
    const best = [...running].reverse().find((candidate) => candidate.turn > 0) ?? running.at(-1);
    const session = best ?? (this.shown === null ? recent[0] : null);
    if (session && session.trajectory !== this.shown) this.open(session.trajectory);
    else if (!session && this.shown === null) {
      replace(this.screen, hint("A terminal appears here when the first episode starts."));
    }
  }

  open(trajectory, byHand = false) {
    this.close();
    this.shown = trajectory;
    this.watched.add(trajectory);
    this.unseen.delete(trajectory);
    if (this.runs(trajectory)) this.watch(trajectory);
    else this.replay(trajectory, byHand);
    this.drawList();
    this.drawHead();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.source?.close();
    this.player?.stop();
    this.source = null;
    this.player = null;
    this.terminal = null;
    replace(this.screen);
    replace(this.foot);
  }

  watch(trajectory) {
    const terminal = new Terminal(this.screen);
    this.terminal = terminal;
    this.seenLines = 0;
    this.source = new EventSource(`/api/terminals/${encodeURIComponent(trajectory)}`);
    this.source.addEventListener("cast", (message) => {
      const chunk = JSON.parse(message.data);
      if (chunk.title) terminal.width = chunk.width;
      for (const [, text] of chunk.events) terminal.write(text);
      requestAnimationFrame(() => this.drawFresh());
    });
    this.source.addEventListener("end", () => this.endSoon());
    replace(this.foot, h("span", {}, "live"));
  }

  async replay(trajectory, byHand) {
    const answer = await fetch(`/api/trajectories/${encodeURIComponent(trajectory)}`);
    if (this.shown !== trajectory) return;
    const recording = await answer.json();
    if (!answer.ok) {
      replace(this.screen, hint(recording.error));
      return;
    }
    this.player = new Player(this.screen, this.foot, recording, { atEnd: !byHand });
    if (byHand) this.player.play();
    else this.player.pause();
  }

  // The session that is shown has ended: its verdict stays a moment, then the next one comes.
  endSoon() {
    if (this.timer) return;
    const goesOn = this.follow.checked && this.state.running.length;
    replace(this.foot, h("span", {}, goesOn ? "ended; the next one follows" : "ended"));
    this.timer = setTimeout(() => this.goOn(), LINGER_MS);
  }

  goOn() {
    this.timer = 0;
    this.source?.close();
    if (this.follow.checked) {
      this.source = null;
      this.next();
    }
    if (this.terminal && this.source?.readyState === EventSource.CLOSED) this.open(this.shown);
  }

  drawFresh() {
    if (!this.terminal || this.timer) return;
    const { scrollHeight, scrollTop, clientHeight } = this.screen;
    if (scrollHeight - scrollTop - clientHeight < 24) this.seenLines = this.terminal.lineCount;
    const fresh = this.terminal.lineCount - this.seenLines;
    const toEnd = () => {
      this.screen.scrollTop = this.screen.scrollHeight;
    };
    const down = h("button", { class: "fresh", type: "button", onclick: toEnd }, `↓ ${plural(fresh, "new line")}`);
    replace(this.foot, h("span", {}, "live"), fresh > 0 && h("span", { class: "right" }, down));
  }

  drawHead() {
    const session = this.shown && this.find(this.shown);
    if (!session) {
      replace(this.head, h("span", {}, this.shown ?? ""));
      return;
    }
    const [text, kind] = verdict(session);
    replace(
      this.head,
      h("b", {}, session.task),
      h("span", { class: "said", title: session.instruction }, session.instruction),
      h("span", { class: `tag ${kind}` }, text),
    );
  }

  drawList() {
    const { running, recent, running_count: total } = this.state;
    const unseen = this.unseen.size;
    replace(this.running, `Running ${total}`);
    replace(this.ended, "Ended", unseen > 0 && h("span", { class: "unseen", title: "ended unseen" }, String(unseen)));
    this.running.setAttribute("aria-selected", String(this.tab === "running"));
    this.ended.setAttribute("aria-selected", String(this.tab === "ended"));
    const sessions = this.tab === "running" ? [...running].reverse() : recent;
    const none = this.tab === "running" ? "No episode is running." : "No episode has ended yet.";
    if (sessions.length) replace(this.list, ...sessions.map((session) => this.item(session)));
    else replace(this.list, h("li", { class: "none" }, none));
  }

  item(session) {
    const { trajectory, command, task, reward, sample } = session;
    const current = String(trajectory === this.shown);
    const onclick = () => this.pick(trajectory);
    const button = h(
      "button",
      { type: "button", "aria-current": current, title: command, onclick },
      h("i", { class: dot(session) }),
      h("b", {}, task || trajectory),
      h("em", {}, reward === null ? `#${sample}` : fixed(reward)),
      h("small", {}, line(session)),
    );
    return h("li", {}, button);
  }

  pick(trajectory) {
    this.follow.checked = false;
    this.open(trajectory, true);
  }
}

function line(session) {
  const { status, turn, command, started_at: from, ended_at: to, purpose } = session;
  if (status === "running") return turn ? `turn ${turn} · ${command || "thinking"}` : "starting";
  const took = to && from ? ` · ${duration(to - from)}` : "";
  return `${purpose === "train" ? "" : `${words(purpose)} · `}${words(status)}${took}`;
}

function dot(session) {
  if (session.status === "running") return "run";
  if (session.reward === null) return "infra";
  return session.reward >= 1 ? "pass" : session.reward > 0 ? "part" : "fail";
}

function verdict(session) {
  if (session.status === "running") return [session.turn ? `turn ${session.turn}` : "starting", ""];
  if (session.reward === null) return [words(session.status), "part"];
  return [`${words(session.status)}, reward ${fixed(session.reward)}`, dot(session)];
}
