// Wires the page: the address selects the view, and one event stream per run triggers reloads.

import { getJson, saved } from "./api.js";
import { curvesView } from "./views/curves.js";
import { groupView, groupsView } from "./views/groups.js";
import { listenToKeys } from "./keys.js";
import { Live } from "./event_stream.js";
import { logView } from "./views/log.js";
import { overviewView } from "./views/overview.js";
import { empty, failure } from "./components/elements.js";
import { address, parseRoute } from "./router.js";
import { runsView } from "./views/runs.js";
import { Shell } from "./shell.js";
import { stepView, stepsView } from "./views/steps.js";
import { applyTheme } from "./theme.js";
import { trajectoriesView } from "./views/trajectories.js";
import { trajectoryView } from "./views/trajectory.js";
import { terminalsView } from "./views/terminals.js";

const VIEWS = {
  "": overviewView,
  runs: runsView,
  curves: curvesView,
  steps: stepsView,
  groups: groupsView,
  trajectories: trajectoriesView,
  terminals: terminalsView,
  log: logView,
};
const ONE = { steps: stepView, groups: groupView, trajectories: trajectoryView };
const HEAD_MS = 5000;

const shell = new Shell(saved ? document.querySelector("link[rel=icon]").href : "/static/mark.svg");
let live = null;
let shown = null; // {view, place, abort}
let waits = false;

function render() {
  const place = parseRoute(location.hash);
  if (!place.run && !location.hash.startsWith("#/runs")) return openFirst();
  close();
  follow(place.run);
  const make = place.id ? ONE[place.page] : VIEWS[place.page];
  const abort = new AbortController();
  const setQuery = (query) => history.replaceState(null, "", address(place.run, place.page, place.id, query));
  const view = make
    ? make({ ...place, signal: abort.signal, setQuery })
    : { title: "", element: empty("Page not found.", "g o leads to the overview.") };
  shown = { view, place, abort };
  shell.place({ ...place, title: view.title });
  shell.main.replaceChildren(view.element);
  scrollTo(0, 0);
}

// The default address: the content of a saved file, or else the run that the monitor was started on.
async function openFirst() {
  if (saved) return location.replace(`#${saved.at}`);
  try {
    const { current } = await getJson("/api/runs");
    location.replace(address(current));
  } catch (error) {
    shell.main.replaceChildren(failure(error, openFirst));
  }
}

function close() {
  shown?.abort.abort();
  shown?.view.close?.();
  shown = null;
}

function follow(run) {
  if (saved || live?.run === run) return;
  live?.close();
  live = null;
  shell.stand(null);
  shell.tell("");
  if (!run) return;
  live = new Live(run, { head: refresh, events: (items) => shown?.view.events?.(items), connection: connected });
}

function connected(name, line) {
  if (live?.head) shell.stand(live.head, name);
  if (name === "gone") {
    close();
    shell.tell("");
    shell.main.replaceChildren(failure(new Error(line)));
  }
}

// Reload at most once a second, and not while the page is hidden.
function refresh(head) {
  shell.stand(head, live.connection);
  if (document.hidden) waits = true;
  else shown?.view.refresh?.();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !waits) return;
  waits = false;
  shown?.view.refresh?.();
});

applyTheme();
listenToKeys({ shell, place: () => parseRoute(location.hash), view: () => shown?.view });
addEventListener("hashchange", render);
if (!saved) setInterval(() => live?.head && shell.stand(live.head, live.connection), HEAD_MS);
render();
