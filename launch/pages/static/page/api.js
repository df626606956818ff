// Requests to the monitor, or to the saved file that this page is in.  Every error is one line that can be shown.

const embedded = document.getElementById("data");
export const saved = embedded ? JSON.parse(embedded.textContent) : null;

export class Refused extends Error {
  constructor(status, line) {
    super(line);
    this.status = status;
  }
}

export const ofRun = (run, path, query = {}) => {
  const given = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value !== undefined));
  return `/api/runs/${encodeURIComponent(run)}/${path}${given.size ? `?${given}` : ""}`;
};

export async function getJson(path, signal) {
  if (saved) return fromFile(path);
  const answer = await answered(path, signal);
  return answer.json();
}

export async function getText(path, signal) {
  if (saved) return fromFile(path);
  const answer = await answered(path, signal);
  return answer.text();
}

// The address of a picture; in a saved file the picture itself, or nothing.
export const pictureSource = (path) => (saved ? saved.answers[path] : path);

function fromFile(path) {
  if (path in saved.answers) return saved.answers[path];
  throw new Refused(404, "This is not part of the saved file; open the run in a monitor.");
}

async function answered(path, signal) {
  let answer;
  try {
    answer = await fetch(path, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(
      0,
      "The monitor does not respond. Start it again with: longshore monitor runs/ID",
    );
  }
  if (answer.ok) return answer;
  throw new Refused(answer.status, await lineOf(answer));
}

async function lineOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `The monitor answered ${answer.status}.`;
  }
}
