// The terminals panel: pick a session, watch it live, and go on to the next when it ends.

import { h, replace } from "./dom.js";
import { duration, fixed, plural, words } from "./format.js";
import { Player } from "./player.js";
import { Terminal } from "./terminal.js";

const LINGER_MS = 2500;

export class TerminalsPanel {
  constructor() {
    const element = (id) => document.getElementById(id);
    Object.assign(this, { list: element("sessions"), head: element("viewer-head"), screen: element("screen"), foot: element("viewer-foot"),
      running: element("tab-running"), ended: element("tab-ended"), follow: element("follow"),
      tab: "running", shown: null, source: null, player: null, terminal: null, state: null, watched: new Set(), unseen: new Set(), known: null, timer: 0, seenLines: 0 });
    this.running.addEventListener("click", () => this.choose("running"));
    this.ended.addEventListener("click", () => this.choose("ended"));
    this.follow.addEventListener("change", () => this.follow.checked && this.next());
    this.screen.addEventListener("scroll", () => this.drawFresh());
  }

  update(state) {
    this.state = state;
    const live = new Set(state.running.map((session) => session.trajectory));
    for (const session of state.recent) if (this.known && !this.known.has(session.trajectory) && !this.watched.has(session.trajectory)) this.unseen.add(session.trajectory);
    this.known = new Set(state.recent.map((session) => session.trajectory));
    if (this.unseen.size > 999) this.unseen.clear();
    if (!state.running.length && this.tab === "running" && state.run.finished_at !== null) this.choose("ended");
    if (this.shown === null) this.next();
    else if (this.source && !live.has(this.shown)) this.endSoon();
    this.drawList();
    this.drawHead();
  }

  choose(tab) {
    this.tab = tab;
    if (tab === "ended") this.unseen.clear();
    this.drawList();
  }

  find(trajectory) {
    return [...this.state.running, ...this.state.recent].find((session) => session.trajectory === trajectory);
  }

  next() {
    const session = [...this.state.running].reverse().find((candidate) => candidate.turn > 0) ?? this.state.running.at(-1) ?? (this.shown === null ? this.state.recent[0] : null);
    if (session && session.trajectory !== this.shown) this.open(session.trajectory);
    else if (!session && this.shown === null) replace(this.screen, h("div", { class: "t-dim" }, "A terminal appears here when the first episode starts."));
  }

  open(trajectory, byHand = false) {
    this.close();
    this.shown = trajectory;
    this.watched.add(trajectory);
    this.unseen.delete(trajectory);
    if (this.state.running.some((session) => session.trajectory === trajectory)) this.watch(trajectory);
    else this.replay(trajectory, byHand);
    this.drawList();
    this.drawHead();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.source?.close();
    this.player?.stop();
    this.source = this.player = this.terminal = null;
    replace(this.screen);
    replace(this.foot);
  }

  watch(trajectory) {
    const terminal = (this.terminal = new Terminal(this.screen));
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
    if (!answer.ok) return replace(this.screen, h("div", { class: "t-dim" }, (await answer.json()).error));
    const recording = await answer.json();
    this.player = new Player(this.screen, this.foot, recording, { atEnd: !byHand });
    if (byHand) this.player.play();
    else this.player.pause();
  }

  // The session that is shown has ended: its verdict stays a moment, then the next one comes.
  endSoon() {
    if (this.timer) return;
    replace(this.foot, h("span", {}, this.follow.checked && this.state.running.length ? "ended; the next one follows" : "ended"));
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.source?.close();
      if (this.follow.checked) { this.source = null; this.next(); }
      if (this.terminal && this.source?.readyState === EventSource.CLOSED) { const ended = this.shown; this.open(ended); }
    }, LINGER_MS);
  }

  drawFresh() {
    if (!this.terminal || this.timer) return;
    const { scrollHeight, scrollTop, clientHeight } = this.screen;
    const atEnd = scrollHeight - scrollTop - clientHeight < 24;
    if (atEnd) this.seenLines = this.terminal.lineCount;
    const fresh = this.terminal.lineCount - this.seenLines;
    const down = fresh > 0 && h("button", { class: "fresh", type: "button", onclick: () => { this.screen.scrollTop = this.screen.scrollHeight; } }, `↓ ${plural(fresh, "new line")}`);
    replace(this.foot, h("span", {}, "live"), down && h("span", { class: "right" }, down));
  }

  drawHead() {
    const session = this.shown && this.find(this.shown);
    if (!session) return replace(this.head, h("span", {}, this.shown ?? ""));
    const [text, kind] = verdict(session);
    replace(this.head, h("b", {}, session.task), h("span", { class: "said", title: session.instruction }, session.instruction), h("span", { class: `tag ${kind}` }, text));
  }

  drawList() {
    const { running, recent, running_count: total } = this.state;
    replace(this.running, `Running ${total}`);
    replace(this.ended, "Ended", this.unseen.size ? h("span", { class: "unseen", title: "ended unseen" }, String(this.unseen.size)) : "");
    this.running.setAttribute("aria-selected", String(this.tab === "running"));
    this.ended.setAttribute("aria-selected", String(this.tab === "ended"));
    const sessions = this.tab === "running" ? [...running].reverse() : recent;
    const items = sessions.map((session) => h("li", {}, h("button", { type: "button", "aria-current": String(session.trajectory === this.shown), title: session.command, onclick: () => this.pick(session.trajectory) },
      h("i", { class: dot(session) }), h("b", {}, session.task || session.trajectory), h("em", {}, session.reward === null ? `#${session.sample}` : fixed(session.reward)), h("small", {}, line(session)))));
    replace(this.list, ...(items.length ? items : [h("li", { class: "none" }, this.tab === "running" ? "No episode is running." : "No episode has ended yet.")]));
  }

  pick(trajectory) {
    this.follow.checked = false;
    this.open(trajectory, true);
  }
}

function line(session) {
  if (session.status === "running") return session.turn ? `turn ${session.turn} · ${session.command || "thinking"}` : "starting";
  const took = session.ended_at && session.started_at ? ` · ${duration(session.ended_at - session.started_at)}` : "";
  return `${session.purpose === "train" ? "" : `${words(session.purpose)} · `}${words(session.status)}${took}`;
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
