// Draws the terminals of a comparison, side by side, from the data that the page carries.

import { replace } from "./dom.js";
import { fixed, words } from "./format.js";
import { replay } from "./replay.js";

const data = JSON.parse(document.getElementById("data").textContent);

function drawSide(recording) {
  const verdict = recording.passed ? "passed" : "failed";
  const result = `${verdict}, ${words(recording.status)}, reward ${fixed(recording.reward)}`;
  return replay(recording, recording.label, result, recording.passed ? "" : "fail");
}

data.terminals.forEach((pair, index) => {
  replace(document.getElementById(`pair-${index}`), ...pair.map(drawSide));
});
