// The frame of every view: breadcrumbs, the state of the run, and navigation.

import { h, replace } from "../dom.js";
import { count, duration, words } from "../format.js";
import { saved } from "./api.js";
import { helpDialog } from "./keys.js";
import { address } from "./router.js";
import { nextTheme, theme } from "./theme.js";

const QUIET_S = 60;
const WORTH_A_WORD = 1 << 18; // bytes; what a run has just written is read within the second

export const PAGES = [
  ["", "Overview"],
  ["curves", "Curves"],
  ["steps", "Steps"],
  ["groups", "Groups"],
  ["trajectories", "Trajectories"],
  ["terminals", "Terminals"],
  ["log", "Log"],
];
const THEMES = { system: "◐", light: "○", dark: "●" };

export class Shell {
  constructor(mark) {
    this.crumbs = h("ol", { class: "crumbs", "aria-label": "Breadcrumbs" });
    this.now = h("div", { class: "now", role: "status" });
    this.nav = h("nav", { "aria-label": "Pages" });
    this.banner = h("div", { class: "banner", role: "status", hidden: true });
    this.help = helpDialog();
    this.light = h("button", { type: "button", class: "tool", id: "theme", onclick: () => this.turnLight() });
    const help = h(
      "button",
      {
        type: "button",
        class: "tool",
        id: "help",
        "aria-label": "Keys",
        title: "Keys (?)",
        onclick: () => this.help.showModal(),
      },
      "?",
    );
    const brand = h(
      "a",
      { class: "brand", href: saved ? "#" : "#/runs", "aria-label": "longshore: all runs" },
      h("img", { src: mark, alt: "", width: "22px", height: "22px" }),
      h("span", {}, "longshore"),
    );
    const top = h("div", { class: "top" }, brand, this.crumbs, this.now, this.light, !saved && help);
    this.main = h("main", { id: "main", tabindex: "-1" });
    const skip = h(
      "a",
      { class: "skip", href: "#main", onclick: (event) => this.skip(event) },
      "Skip to the content",
    );
    document.body.replaceChildren(
      skip,
      h("header", { class: "bar" }, top, this.nav, this.banner),
      this.main,
      this.help,
    );
    this.sayLight();
  }

  skip(event) {
    event.preventDefault();
    this.main.focus();
  }

  turnLight() {
    nextTheme();
    this.sayLight();
  }

  sayLight() {
    const name = theme();
    this.light.textContent = THEMES[name];
    this.light.setAttribute("aria-label", `Light: ${name}`);
    this.light.title = `Light: ${name} (t)`;
  }

  place({ run, page, id, title }) {
    const pageName = PAGES.find(([name]) => name === page)?.[1] ?? "";
    const links = saved ? [] : [["Runs", "#/runs"]];
    if (run) links.push([run, saved ? "#" : address(run)]);
    if (run && page) links.push([pageName, saved ? "" : address(run, page)]);
    if (id) links.push([title || id, ""]);
    const items = links.map(([text, href], index) => {
      const last = index === links.length - 1;
      return h(
        "li",
        {},
        last || !href ? h("span", { "aria-current": last ? "page" : undefined }, text) : h("a", { href }, text),
      );
    });
    replace(this.crumbs, ...items);
    const tabs = PAGES.map(([name, text]) =>
      h("a", { href: address(run, name), "aria-current": name === page ? "page" : undefined }, text),
    );
    replace(this.nav, ...(run && !saved ? tabs : []));
    this.nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  // head: null if no run is shown
  stand(head, connection) {
    if (!head) return replace(this.now);
    const [text, kind] = status(head, connection);
    document.title = `${head.step}${head.steps ? `/${head.steps}` : ""} · ${head.run} · longshore`;
    const steps = h(
      "span",
      { class: "steps" },
      "step ",
      h("b", {}, count(head.step)),
      head.steps ? ` of ${count(head.steps)}` : "",
    );
    replace(this.now, steps, h("span", { class: `pill ${kind}` }, text));
    const behind =
      head.behind_bytes > WORTH_A_WORD
        ? `Still reading ${(head.behind_bytes / 1e6).toFixed(1)} MB of this run's files.`
        : "";
    this.tell(head.problem || behind, head.problem ? "bad" : "");
  }

  tell(line, kind = "") {
    this.banner.hidden = !line;
    this.banner.className = `banner ${kind}`;
    replace(this.banner, h("div", {}, line));
  }
}

const STATUS_KINDS = { finished: "", failed: "bad", stopped: "warn", damaged: "bad" };

function status(head, connection) {
  if (connection === "gone") return ["removed", "bad"];
  if (connection === "away") return ["reconnecting", "warn"];
  if (head.status !== "running") return [head.status, STATUS_KINDS[head.status]];
  if (head.flow) return [head.flow, "warn"];
  const quiet = Date.now() / 1000 - (head.last_event_at ?? 0);
  if (head.last_event_at === null) return ["waiting", "warn"];
  return quiet > QUIET_S ? [`no events for ${duration(quiet)}`, "warn"] : [words(head.phase || "live"), "live"];
}
