// The event stream of one run.  It resumes where it broke off, and reports the state of the connection.

import { ofRun } from "./api.js";

const AGAIN_MS = 2000;

export class Live {
  connection = "connecting"; // live, away, gone
  head = null;

  // listener: {head(head), events(items), connection(name, line)}
  constructor(run, listener) {
    this.run = run;
    this.listener = listener;
    this.cursor = "now";
    this.open();
  }

  open() {
    this.source = new EventSource(ofRun(this.run, "events", { cursor: this.cursor }));
    this.source.addEventListener("open", () => this.become("live"));
    this.source.addEventListener("error", () => this.broken());
    this.source.addEventListener("run_removed", (message) => this.gone(JSON.parse(message.data).error));
    this.source.addEventListener("head", (message) => {
      this.head = JSON.parse(message.data);
      this.listener.head(this.head);
    });
    this.source.addEventListener("events", (message) => {
      this.cursor = message.lastEventId || this.cursor;
      this.listener.events(JSON.parse(message.data));
    });
  }

  // The browser reconnects by itself, except after a response that is not a stream.
  broken() {
    if (this.connection === "gone") return;
    this.become("away");
    if (this.source.readyState !== EventSource.CLOSED) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), AGAIN_MS);
  }

  gone(line) {
    this.source.close();
    this.become("gone", line);
  }

  become(name, line = "") {
    if (this.connection === name) return;
    this.connection = name;
    this.listener.connection(name, line);
  }

  close() {
    clearTimeout(this.timer);
    this.source.close();
  }
}
