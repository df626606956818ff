// Light, dark or the system's theme; the choice is stored in the browser.

const KEY = "longshore-theme";
const CHOICES = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

export function theme() {
  const kept = recall();
  return CHOICES.includes(kept) ? kept : "system";
}

export function applyTheme() {
  const chosen = theme();
  document.documentElement.dataset.theme = chosen === "system" ? (system.matches ? "dark" : "light") : chosen;
  document.dispatchEvent(new Event("theme"));
}

export function nextTheme() {
  const next = CHOICES[(CHOICES.indexOf(theme()) + 1) % CHOICES.length];
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage the choice lasts for this page.
  }
  applyTheme();
  return next;
}

// A colour of the palette in the current theme, for drawing on a canvas.
export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

system.addEventListener("change", applyTheme);

function recall() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
