// Keyboard shortcuts.  They are off in inputs and in the player, which has its own; a view's shortcuts come first.

import { h } from "../dom.js";
import { address } from "./router.js";

const GO = { o: "", c: "curves", s: "steps", g: "groups", t: "trajectories", w: "terminals", l: "log" };
const HELP = [
  ["?", "these keys"],
  ["/", "focus the search"],
  ["j  k", "next, previous row"],
  ["Enter", "open row"],
  ["u", "up: to the list, the run, all runs"],
  ["[  ]", "previous, next sample or step"],
  ["n  p", "next, previous turn"],
  ["Space", "play or pause terminal"],
  ["e", "export"],
  ["t", "light, dark, system"],
  ["g o", "overview"],
  ["g c", "curves"],
  ["g s", "steps"],
  ["g g", "groups"],
  ["g t", "trajectories"],
  ["g w", "terminals"],
  ["g l", "log"],
  ["g r", "all runs"],
];

export function helpDialog() {
  const rows = HELP.flatMap(([keys, what]) => [
    h("dt", {}, ...keys.split(/ +/).flatMap((key) => [h("kbd", {}, key), " "])),
    h("dd", {}, what),
  ]);
  const dialog = h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"), h("dl", {}, ...rows));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

// place() → {run, page, id}; view() → the view's own shortcuts, if any
export function listenToKeys({ shell, place, view }) {
  let went = false; // "g" was pressed: the next key says where to
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (shell.help.open || event.target.closest?.(".ap-player")) return;
    const second = went;
    went = false;
    if (second && go(event.key, place().run)) return event.preventDefault();
    if (event.key === "g") went = true;
    else if (press(event, shell, place, view)) event.preventDefault();
  });
}

function press(event, shell, place, view) {
  const { key, target } = event;
  if (key === " " && target instanceof HTMLButtonElement) return false;
  if (view()?.keys?.(key)) return true;
  if (key === "?") shell.help.showModal();
  else if (key === "/") document.querySelector("main [data-filter]")?.focus();
  else if (key === "t") shell.turnLight();
  else if (key === "j" || key === "k") moveRow(key === "j" ? 1 : -1);
  else if (key === "u") up(place());
  else if (["[", "]", "e"].includes(key)) document.querySelector(`main [data-key="${key}"]`)?.click();
  else return false;
  return true;
}

function go(key, run) {
  if (key === "r") location.hash = "#/runs";
  else if (run && key in GO) location.hash = address(run, GO[key]);
  else return false;
  return true;
}

function up({ run, page, id }) {
  location.hash = id ? address(run, page) : page && page !== "runs" ? address(run) : "#/runs";
}

function moveRow(by) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
}

function typing(target) {
  return (
    target instanceof HTMLSelectElement ||
    target instanceof HTMLTextAreaElement ||
    (target instanceof HTMLInputElement && target.type !== "checkbox")
  );
}
