// A row for each value: its name, a bar, and the value as text.

import { h } from "../../dom.js";

// rows: [name, value]; rows from index `over` on are highlighted.
export function bars(rows, format, over = Infinity) {
  const most = Math.max(...rows.map(([, value]) => value ?? 0), 1e-9);
  return h(
    "ul",
    { class: "bars" },
    ...rows.map(([name, value], index) =>
      h(
        "li",
        { class: index >= over ? "over" : undefined },
        h("span", {}, name),
        h("span", { class: "track" }, h("i", { width: `${(100 * (value ?? 0)) / most}%` })),
        h("span", {}, format(value)),
      ),
    ),
  );
}
