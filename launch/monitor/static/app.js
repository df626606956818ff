// Wires the page to the run: one event stream in, panels out.  A stream that breaks is resumed where it was.

import { drawCards, drawCurves, drawFoot, drawGroups, drawHeader, drawLog, drawSmall } from "./panels.js";
import { TerminalsPanel } from "./terminals.js";

const MAX_LOG = 2000;
const element = (id) => document.getElementById(id);
let state = null, connected = false, queued = false, log = [];
const terminals = new TerminalsPanel();

function schedule() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; draw(); });
}

function draw() {
  if (!state) return;
  drawHeader(state, connected);
  element("main").hidden = state.empty;
  element("notice").hidden = !state.empty;
  if (state.empty) {
    const damaged = state.reading.damaged ? `\nOf ${state.reading.lines} lines in its files, all are damaged.` : "";
    element("notice").textContent = `Nothing is recorded in this run directory yet.${damaged}\nThis page fills itself as soon as the run writes its first event.`;
    return;
  }
  drawCards(element("cards"), state);
  drawCurves(state);
  drawSmall(element("small"), state);
  drawGroups(element("groups"), state, (trajectory) => { terminals.pick(trajectory); element("screen").scrollIntoView({ block: "nearest", behavior: "smooth" }); });
  drawLog(element("log"), log, element("details").checked);
  drawFoot(element("foot"), state);
  terminals.update(state);
}

async function start() {
  const answer = await fetch("/api/state");
  state = await answer.json();
  log = state.log;
  const source = new EventSource(`/api/events?cursor=${encodeURIComponent(state.cursor)}`);
  source.addEventListener("open", () => { connected = true; schedule(); });
  source.addEventListener("error", () => { connected = false; schedule(); });
  source.addEventListener("state", (message) => { state = JSON.parse(message.data); schedule(); });
  source.addEventListener("events", (message) => {
    for (const { line } of JSON.parse(message.data)) if (line) log.push(line);
    if (log.length > MAX_LOG) log = log.slice(-MAX_LOG);
    schedule();
  });
  element("details").addEventListener("change", schedule);
  addEventListener("resize", schedule);
  setInterval(schedule, 5000);
  schedule();
}

start().catch((error) => {
  element("notice").hidden = false;
  element("notice").textContent = `The run cannot be read: ${error.message}. Reload to try again.`;
});
