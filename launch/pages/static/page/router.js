// Addresses of views, in the part behind "#": they survive a reload, can be sent to somebody, and work in a saved file.
//   #/runs                         all runs
//   #/run/RUN/PAGE/ID?filter=…     a page of one run

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [kind, run = "", page = "", ...rest] = path.split("/").map(unescaped);
  const known = kind === "run" && run;
  return {
    run: known ? run : "",
    page: known ? page : "runs",
    id: rest.join("/"),
    query: new URLSearchParams(query),
  };
}

export function address(run, page = "", id = "", query = {}) {
  const given = query instanceof URLSearchParams ? query : new URLSearchParams(Object.entries(query));
  const parts = ["run", run, page, String(id)].filter(Boolean).map(encodeURIComponent);
  return `#/${parts.join("/")}${given.size ? `?${given}` : ""}`;
}

// What a person typed may be no escape at all.
function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
