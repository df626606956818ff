// Addresses of views in the fragment ("#"), which survive a reload, can be shared, and work in a saved file.
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

// A typed address may have invalid escapes.
function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
