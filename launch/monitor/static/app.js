// Wires the page to the run: one event stream in, panels out.  A stream that breaks is resumed where it was.

import { drawCards, drawCurves, drawFoot, drawGroups, drawHeader, drawLog, drawSmall } from "./panels.js";
import { TerminalsPanel } from "./terminals.js";

const MAX_LOG = 2000;
const REDRAW_MS = 5000;
const element = (id) => document.getElementById(id);
const terminals = new TerminalsPanel();
let state = null;
let connected = false;
let queued = false;
let log = [];

function schedule() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    draw();
  });
}

function draw() {
  if (!state) return;
  drawHeader(state, connected);
  element("main").hidden = state.empty;
  element("notice").hidden = !state.empty;
  if (state.empty) {
    element("notice").textContent = emptyNotice(state.reading);
    return;
  }
  drawCards(element("cards"), state);
  drawCurves(state);
  drawSmall(element("small"), state);
  drawGroups(element("groups"), state, showTerminal);
  drawLog(element("log"), log, element("details").checked);
  drawFoot(element("foot"), state);
  terminals.update(state);
}

function emptyNotice({ lines, damaged }) {
  const notice = [
    "Nothing is recorded in this run directory yet.",
    damaged ? `Of ${lines} lines in its files, all are damaged.` : "",
    "This page fills itself as soon as the run writes its first event.",
  ];
  return notice.filter(Boolean).join("\n");
}

function showTerminal(trajectory) {
  terminals.pick(trajectory);
  element("screen").scrollIntoView({ block: "nearest", behavior: "smooth" });
}

function setConnected(now) {
  connected = now;
  schedule();
}

async function start() {
  const answer = await fetch("/api/state");
  state = await answer.json();
  log = state.log;
  const source = new EventSource(`/api/events?cursor=${encodeURIComponent(state.cursor)}`);
  source.addEventListener("open", () => setConnected(true));
  source.addEventListener("error", () => setConnected(false));
  source.addEventListener("state", (message) => {
    state = JSON.parse(message.data);
    schedule();
  });
  source.addEventListener("events", (message) => {
    for (const { line } of JSON.parse(message.data)) if (line) log.push(line);
    if (log.length > MAX_LOG) log = log.slice(-MAX_LOG);
    schedule();
  });
  element("details").addEventListener("change", schedule);
  addEventListener("resize", schedule);
  setInterval(schedule, REDRAW_MS);
  schedule();
}

start().catch((error) => {
  element("notice").hidden = false;
  element("notice").textContent = `The run cannot be read: ${error.message}. Reload to try again.`;
});
