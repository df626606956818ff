// Draws the terminals of a comparison, side by side, from the data that the page carries.

import { h, replace } from "./dom.js";
import { fixed, words } from "./format.js";
import { Player } from "./player.js";

const data = JSON.parse(document.getElementById("data").textContent);

function drawSide(recording) {
  const screen = h("div", { class: "screen", tabindex: "0", "aria-label": `Terminal, ${recording.label}` });
  const foot = h("div", { class: "viewer-foot" });
  const result = h(
    "span",
    { class: `tag ${recording.passed ? "" : "fail"}` },
    `${recording.passed ? "passed" : "failed"}, ${words(recording.status)}, reward ${fixed(recording.reward)}`,
  );
  const head = h("div", { class: "viewer-head" }, h("b", {}, recording.label), h("span", { class: "said" }), result);
  if (!recording.events.length) replace(foot, h("span", {}, "not recorded"));
  else new Player(screen, foot, recording, { atEnd: true }).pause();
  return h("div", { class: "viewer" }, head, screen, foot);
}

data.terminals.forEach((pair, index) => {
  replace(document.getElementById(`pair-${index}`), ...pair.map(drawSide));
});
