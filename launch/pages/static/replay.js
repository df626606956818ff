// A recorded terminal of a report or a comparison: a heading and the player.

import { h } from "./dom.js";
import { Recording } from "./page/components/recording.js";

// recording: {events: [[seconds, text]], width, height}; kind: "", "part" or "fail".
export function replay(recording, heading, result, kind) {
  const screen = h("div", { class: "recording", "aria-label": `Terminal, ${recording.label}` });
  const head = h("div", { class: "viewer-head" }, h("b", {}, heading), h("span", { class: `tag ${kind}` }, result));
  const play = () => new Recording(screen, () => {}).load(castOf(recording));
  if (recording.events.length) queueMicrotask(play); // the player reads its colours where it stands in the page
  else screen.append(h("p", { class: "state" }, "not recorded"));
  return h("div", { class: "viewer" }, head, screen);
}

// The recording as an asciicast of version 2.
function castOf({ width, height, events }) {
  const lines = events.map(([seconds, text]) => JSON.stringify([seconds, "o", text]));
  return [JSON.stringify({ version: 2, width, height }), ...lines].join("\n");
}
