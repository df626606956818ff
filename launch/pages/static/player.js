// Replays a recording.  Real pauses are evened out (long ones cut, instant commands slowed) so that a person can read.

import { h, replace } from "./dom.js";
import { Terminal } from "./terminal.js";

const SPEEDS = [1, 2, 4];
const SLIDER = 1000;

export class Player {
  next = 0;
  now = 0;
  speed = 1;
  playing = false;
  stopped = false;

  // recording: {events: [[seconds, text]], width, height}; controls is the element that gets the buttons.
  constructor(screen, controls, recording, { atEnd = false, onEnd = () => {} } = {}) {
    this.controls = controls;
    this.onEnd = onEnd;
    this.events = recording.events;
    this.times = evened(recording.events);
    this.length = (this.times.at(-1) ?? 0) + 0.4;
    this.terminal = new Terminal(screen, recording.width, recording.height);
    this.drawControls();
    this.seek(atEnd ? this.length : 0);
  }

  drawControls() {
    const toggle = () => (this.playing ? this.pause() : this.play());
    const slide = () => {
      this.pause();
      this.seek((this.slider.value / SLIDER) * this.length);
    };
    const range = { type: "range", min: 0, max: SLIDER, value: 0, "aria-label": "Position" };
    this.button = h("button", { type: "button", onclick: toggle }, "Play");
    this.slider = h("input", { ...range, oninput: slide });
    this.faster = h("button", { type: "button", onclick: () => this.speedUp() }, "1×");
    replace(this.controls, this.button, this.slider, this.faster);
  }

  speedUp() {
    this.speed = SPEEDS[(SPEEDS.indexOf(this.speed) + 1) % SPEEDS.length];
    this.faster.textContent = `${this.speed}×`;
  }

  play() {
    if (this.now >= this.length) this.seek(0);
    this.playing = true;
    this.button.textContent = "Pause";
    let last = performance.now();
    const tick = (at) => {
      if (!this.playing || this.stopped) return;
      this.seek(this.now + ((at - last) / 1000) * this.speed);
      last = at;
      if (this.now < this.length) {
        requestAnimationFrame(tick);
        return;
      }
      this.pause();
      this.onEnd();
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.playing = false;
    this.button.textContent = this.now >= this.length ? "Replay" : "Play";
  }

  seek(to) {
    this.now = Math.min(to, this.length);
    if (this.next > 0 && this.times[this.next - 1] > this.now) {
      this.terminal.reset();
      this.next = 0;
    }
    while (this.next < this.events.length && this.times[this.next] <= this.now) {
      this.terminal.write(this.events[this.next][1]);
      this.next += 1;
    }
    this.slider.value = String(Math.round((SLIDER * this.now) / this.length));
  }

  stop() {
    this.stopped = true;
    replace(this.controls);
  }
}

function evened(events) {
  let at = 0;
  let before = 0;
  return events.map(([seconds, text]) => {
    const least = text.includes("\x1b[1;36m$") ? 0.7 : 0.15;
    at += Math.min(1.4, Math.max(least, seconds - before));
    before = seconds;
    return at;
  });
}
