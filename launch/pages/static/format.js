// Formats numbers for people.

export function fixed(value, digits = 2) {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

export function percent(value, digits = 1) {
  return Number.isFinite(value) ? `${(100 * value).toFixed(digits)} %` : "–";
}

// At most four significant digits.
export function compact(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1000 ? count(value) : String(Number(value.toPrecision(4)));
}

export function count(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return Math.round(value).toLocaleString("en");
}

export function milliseconds(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(value < 10000 ? 2 : 1)} s`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const total = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(total / 3600), Math.floor(total / 60) % 60];
  if (hours) return `${hours} h ${String(minutes).padStart(2, "0")} min`;
  return minutes ? `${minutes} min ${String(total % 60).padStart(2, "0")} s` : `${total} s`;
}

export function clock(unixSeconds) {
  const at = new Date(unixSeconds * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function words(name) {
  return String(name).replaceAll("_", " ");
}

export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}
