// A link to a file that shows a trajectory or a group without the monitor.

import { h } from "../../dom.js";
import { ofRun } from "../api.js";

export function exportLink(run, kind, id) {
  const href = ofRun(run, `${kind}/${encodeURIComponent(id)}/export`);
  return h(
    "a",
    {
      class: "button",
      href,
      download: "",
      title: "One file that opens without this monitor and without a network",
      "data-key": "e",
    },
    "Export",
  );
}
