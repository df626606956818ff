// Terminals, live and recorded, are drawn by asciinema-player.  A recording's pauses are shortened, and times are
// mapped both ways.

import { h, replace } from "../../dom.js";

const LONGEST_S = 1.5;
const LOOK_MS = 150;
const LATE_S = 0.02;

// Returns a player in the box, and none where the package is missing, which the box then says.
function makePlayer(box, source, options) {
  replace(box);
  if (globalThis.AsciinemaPlayer)
    return globalThis.AsciinemaPlayer.create(source, box, { fit: "width", theme: "longshore", ...options });
  const line = "Terminals need asciinema-player: run make setup with a network, then reload.";
  replace(box, h("p", { class: "state" }, line));
  return null;
}

export class LiveTerminal {
  queued = [];

  constructor(box) {
    const driver = ({ dispatch }) => ({
      play: () => {
        dispatch("play");
        dispatch("playing");
        this.dispatch = dispatch;
        for (const event of this.queued.splice(0)) dispatch(...event);
      },
      getTiming: () => ({ time: 0, rate: 0 }),
    });
    this.player = makePlayer(box, driver, { controls: false, autoPlay: true });
  }

  // Clears the screen; the size is that of a recording's header.
  reset(cols, rows) {
    this.send("reset", { size: { cols, rows } });
  }

  write(text) {
    this.send("output", text);
  }

  send(...event) {
    if (this.dispatch) this.dispatch(...event);
    else this.queued.push(event);
  }

  close() {
    this.player?.dispose();
  }
}

export class Recording {
  player = null;
  playing = false;

  // onTime(seconds): called while it plays and after each seek, in recording time.
  constructor(box, onTime) {
    this.box = box;
    this.onTime = onTime;
  }

  load(cast) {
    const { data, places } = shortened(cast);
    this.places = places;
    const poster = `npt:${(places.at(-1)?.played ?? 0) + 1}`;
    this.player = makePlayer(this.box, { data }, { preload: true, controls: true, terminalLineHeight: 1.35, poster });
    if (!this.player) return;
    this.player.addEventListener("playing", () => this.watch());
    for (const name of ["pause", "ended"]) this.player.addEventListener(name, () => this.rest());
    this.player.addEventListener("seeked", () => this.tell());
  }

  watch() {
    this.rest();
    this.playing = true;
    this.timer = setInterval(() => this.tell(), LOOK_MS);
  }

  rest() {
    this.playing = false;
    clearInterval(this.timer);
    this.tell();
  }

  async tell() {
    const now = await this.player.getCurrentTime();
    this.onTime(recorded(this.places, Number(now)));
  }

  async seek(seconds) {
    if (!this.player) return;
    await this.player.seek(played(this.places, seconds) + LATE_S);
    this.onTime(seconds);
  }

  async toggle() {
    if (this.playing) await this.player.pause();
    else await this.player?.play();
  }

  close() {
    clearInterval(this.timer);
    this.player?.dispose();
  }
}

// The events with shortened pauses, and the original time of each.
export function shortened(cast) {
  const [head, ...lines] = cast.split("\n").filter(Boolean);
  const places = [{ recorded: 0, played: 0 }];
  const moved = lines.map((line) => {
    const [recordedAt, ...rest] = JSON.parse(line);
    const before = places.at(-1);
    const playedAt = before.played + Math.min(LONGEST_S, Math.max(0, recordedAt - before.recorded));
    places.push({ recorded: recordedAt, played: playedAt });
    return JSON.stringify([Number(playedAt.toFixed(3)), ...rest]);
  });
  return { data: [head, ...moved].join("\n"), places };
}

const played = (places, seconds) => between(places, seconds, "recorded", "played");
const recorded = (places, seconds) => between(places, seconds, "played", "recorded");

function between(places, seconds, from, to) {
  const after = places.findIndex((place) => place[from] >= seconds);
  if (after < 0) return places.at(-1)[to];
  if (after === 0) return places[0][to];
  const [low, high] = [places[after - 1], places[after]];
  const part = (seconds - low[from]) / (high[from] - low[from] || 1);
  return low[to] + part * (high[to] - low[to]);
}
