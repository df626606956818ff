// Live terminals as tiles, in one stream.  An ended one stays until a new episode needs its tile.

import { h, replace } from "../../dom.js";
import { fixed, words } from "../../format.js";
import { getJson, getText, ofRun } from "../api.js";
import { empty, failure } from "../components/elements.js";
import { address } from "../router.js";
import { trajectoryOf } from "../ids.js";
import { LiveTerminal, Recording } from "../components/recording.js";

const PLACES = [4, 9, 16, 32];

export function terminalsView(context) {
  const view = new Terminals(context);
  view.load();
  return { title: "Terminals", element: view.element, refresh: () => view.load(), close: () => view.close() };
}

class Terminals {
  tiles = new Map(); // recording → tile
  unseen = new Set();
  cursors = new Map(); // recording → bytes

  constructor(context) {
    Object.assign(this, context);
    this.only = this.query.get("only");
    this.places = Number(this.query.get("places")) || 9;
    const sizes = PLACES.map((n) => h("option", { value: n, selected: n === this.places }, String(n)));
    const size = h("select", { onchange: (event) => this.resize(Number(event.target.value)) }, ...sizes);
    this.follow = h("input", { type: "checkbox", checked: true, onchange: () => this.load() });
    this.fresh = h("button", {
      type: "button",
      class: "button small fresh",
      hidden: true,
      onclick: () => this.catchUp(),
    });
    this.note = h("p", { class: "note", role: "status" });
    this.grid = h("div", { class: `terminals${this.only ? " one" : ""}` });
    const all = this.only && h("a", { class: "button", href: address(this.run, "terminals") }, "All terminals");
    const tools = this.only
      ? [all, h("button", { type: "button", class: "button", onclick: () => this.replay() }, "Replay from the start")]
      : [
          h("label", { class: "field" }, "Terminals", size),
          h("label", { class: "field" }, this.follow, "follow new episodes"),
          this.fresh,
          this.note,
        ];
    this.element = h("div", { class: "stack" }, h("div", { class: "filters" }, ...tools), this.grid);
  }

  resize(places) {
    this.places = places;
    this.query.set("places", String(places));
    this.setQuery(this.query);
    for (const name of [...this.tiles.keys()].slice(places)) this.drop(name);
    this.load();
  }

  catchUp() {
    this.follow.checked = true;
    this.load();
  }

  async load() {
    let state;
    try {
      state = await getJson(ofRun(this.run, "state"), this.signal);
    } catch (error) {
      const away = error.status === 0 && this.tiles.size; // the bar says so, and what was there stays
      if (error.name !== "AbortError" && !away)
        replace(
          this.grid,
          failure(error, () => this.load()),
        );
      return;
    }
    this.arrange(state);
  }

  arrange({ running, recent, running_count: total, run }) {
    const sessions = new Map([...running, ...recent].map((session) => [session.trajectory, session]));
    const live = new Set(running.map((session) => session.trajectory));
    for (const [name, tile] of this.tiles) if (sessions.has(name)) this.describe(tile, sessions.get(name));
    const wanted = this.only ? [this.only] : this.wanted(running, recent, run.finished_at !== null, live);
    const before = [...this.tiles.keys()].join();
    for (const name of [...this.tiles.keys()]) if (!wanted.includes(name)) this.drop(name);
    for (const name of wanted) if (!this.tiles.has(name)) this.add(name, sessions.get(name));
    if (!wanted.length)
      replace(this.grid, empty("No episode is running.", "The next episode appears here."));
    else if (before !== [...this.tiles.keys()].join()) this.connect();
    this.note.textContent = total ? `${total} running` : "no episode is running; these ended last";
    const waiting = running.filter((session) => !this.tiles.has(session.trajectory)).length;
    this.fresh.hidden = this.follow.checked || !waiting;
    this.fresh.textContent = `${waiting} unseen`;
  }

  // Running terminals keep their tiles; tiles of ended ones go to the newest episodes with output.
  wanted(running, recent, finished, live) {
    const shown = [...this.tiles.keys()];
    if (!this.follow.checked && shown.length) return shown;
    const kept = shown.filter((name) => live.has(name));
    const next = [...running]
      .reverse()
      .map((session) => session.trajectory)
      .filter((name) => !kept.includes(name));
    const active = [...kept, ...next].slice(0, this.places);
    const ended = [...shown, ...(active.length && !finished ? [] : recent.map((session) => session.trajectory))];
    const filled = [...new Set([...active, ...ended])].slice(0, this.places);
    return [...shown.filter((name) => filled.includes(name)), ...filled.filter((name) => !shown.includes(name))];
  }

  add(name, session) {
    const screen = h("div", { class: "screen", tabindex: "0", "aria-label": `Terminal of ${name}` });
    const head = h("div", { class: "viewer-head" });
    const element = h("article", { class: "viewer silent", "data-recording": name }, head, screen);
    const tile = { name, head, element, ended: false };
    this.tiles.set(name, tile);
    this.describe(tile, session);
    if (this.tiles.size === 1) replace(this.grid);
    this.grid.append(element);
    tile.terminal = new LiveTerminal(screen); // it reads its colours where it stands in the page
  }

  drop(name) {
    const tile = this.tiles.get(name);
    tile?.terminal.close();
    tile?.element.remove();
    this.tiles.delete(name);
    this.cursors.delete(name);
  }

  describe(tile, session) {
    const running = session?.status === "running";
    const kind = !session || running ? "" : session.reward >= 1 ? "" : session.reward > 0 ? "part" : "fail";
    const said = !session
      ? ""
      : running
        ? `turn ${session.turn}`
        : session.reward === null
          ? words(session.status)
          : `${words(session.status)}, ${fixed(session.reward)}`;
    const href =
      running || !session
        ? address(this.run, "terminals", "", { only: tile.name })
        : address(this.run, "trajectories", trajectoryOf(tile.name));
    const name = h(
      "a",
      { href, "data-row": true, title: session?.instruction || tile.name },
      h("b", {}, session?.task || tile.name),
    );
    replace(
      tile.head,
      name,
      session && h("span", {}, `#${session.sample}`),
      h("span", { class: `tag ${kind}` }, said),
    );
    tile.element.classList.toggle("over", Boolean(session) && !running && !this.only);
  }

  connect() {
    this.source?.close();
    const names = [...this.tiles.keys()];
    if (!names.length) return;
    const known = names
      .filter((name) => this.cursors.has(name))
      .map((name) => `${encodeURIComponent(name)}:${this.cursors.get(name)}`);
    const path = ofRun(this.run, "terminals", { watch: names.join(","), from: "end", cursor: known.join(",") });
    this.source = new EventSource(path);
    this.source.addEventListener("cast", (message) => this.write(JSON.parse(message.data)));
    this.source.addEventListener("end", (message) => this.end(JSON.parse(message.data).trajectory));
  }

  write({ trajectory, events, offset, width, height, title }) {
    const tile = this.tiles.get(trajectory);
    this.cursors.set(trajectory, offset);
    if (!tile) return;
    if (title) tile.terminal.reset(width, height);
    if (events.length) tile.element.classList.remove("silent");
    tile.terminal.write(events.map(([, text]) => text).join(""));
  }

  // The stream ends with the last terminal; it is not opened again for ended ones.
  end(name) {
    const tile = this.tiles.get(name);
    if (tile) tile.ended = true;
    if ([...this.tiles.values()].every((each) => each.ended)) this.source?.close();
  }

  // What one terminal has printed so far, from its start, below the live one.
  async replay() {
    this.recording?.close();
    this.past ??= h("div", { class: "recording", "aria-label": "Recording so far" });
    this.element.append(this.past);
    this.recording = new Recording(this.past, () => {});
    this.recording.load(await getText(ofRun(this.run, `recordings/${encodeURIComponent(this.only)}`), this.signal));
    this.past.scrollIntoView({ behavior: "smooth" });
  }

  close() {
    this.source?.close();
    this.recording?.close();
    for (const name of [...this.tiles.keys()]) this.drop(name);
  }
}
