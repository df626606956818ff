// A small terminal: enough of ECMA-48 to show what shells and test runners print.  Input is untrusted: sequences that
// are not drawn here (titles, links, clipboard, queries) are dropped, and text becomes text nodes only.

import { h, replace } from "./dom.js";

const SCROLLBACK = 1200;
const MAX_PENDING = 4096;
const PLAIN = Object.freeze({ fg: "", bg: "", bold: false, dim: false, italic: false, under: false, inverse: false });
const BLANK = Object.freeze({ character: " ", style: PLAIN });
const ATTRIBUTES = {
  1: { bold: true },
  2: { dim: true },
  3: { italic: true },
  4: { under: true },
  7: { inverse: true },
  22: { bold: false, dim: false },
  23: { italic: false },
  24: { under: false },
  27: { inverse: false },
  39: { fg: "" },
  49: { bg: "" },
};

const CONTROL = /\[([0-9;:<=>?]*)[ -\/]*([@-~])/;
const STRING = /[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)/;
const OTHER = /[ -\/]+[0-~]|[0-OQ-WYZ`-~\\]/;
const ESCAPE = new RegExp(`\\x1b(?:${CONTROL.source}|${STRING.source}|${OTHER.source})`, "y");

export class Terminal {
  constructor(element, width = 80, height = 24, scrollback = SCROLLBACK) {
    this.element = element;
    this.scrollback = scrollback;
    this.reset(width, height);
  }

  // Sets the size from a recording's header, before its first event.
  resize(width, height) {
    this.width = width;
    this.height = height;
  }

  reset(width = this.width, height = this.height) {
    this.width = width;
    this.height = height;
    this.lines = [[]];
    this.row = 0;
    this.column = 0;
    this.style = PLAIN;
    this.pending = "";
    this.dirty = new Set([0]);
    this.nodes = [];
    this.queued = false;
    this.cut = 0;
    replace(this.element);
  }

  write(text) {
    let at = 0;
    const input = this.pending + text;
    this.pending = "";
    while (at < input.length) {
      const code = input.codePointAt(at);
      if (code !== 0x1b) {
        const character = String.fromCodePoint(code);
        at += character.length;
        this.put(character, code);
        continue;
      }
      ESCAPE.lastIndex = at;
      const match = ESCAPE.exec(input);
      if (match) {
        if (match[2]) this.control(match[1], match[2]);
        at = ESCAPE.lastIndex;
      } else if (input.length - at < MAX_PENDING && mayGrow(input, at)) {
        this.pending = input.slice(at);
        break;
      } else at += 1;
    }
    this.schedule();
  }

  put(character, code) {
    if (this.move(code) || isUnseen(code)) return;
    if (this.column >= this.width) {
      this.column = 0;
      this.down();
    }
    const line = this.lines[this.row];
    while (line.length < this.column) line.push(BLANK);
    line[this.column] = { character, style: this.style };
    this.column += 1;
    this.dirty.add(this.row);
  }

  // Whether this is a character that moves the cursor.
  move(code) {
    if (code === 8) this.column = Math.max(0, this.column - 1);
    else if (code === 9) this.column = Math.min(this.width - 1, (Math.floor(this.column / 8) + 1) * 8);
    else if (code === 10) this.down();
    else if (code === 13) this.column = 0;
    else return false;
    return true;
  }

  down() {
    this.row += 1;
    if (this.row === this.lines.length) this.lines.push([]);
    this.dirty.add(this.row);
  }

  control(parameters, final) {
    if (parameters.startsWith("?") && final !== "m") return;
    const numbers = parameters.split(/[;:]/).map((part) => Number.parseInt(part, 10));
    const first = Number.isFinite(numbers[0]) ? Math.min(numbers[0], 1000) : 0;
    const top = Math.max(0, this.lines.length - this.height);
    if (final === "m") this.paint(numbers);
    else if (final === "K") this.erase(first);
    else if (final === "J") this.eraseScreen(first, top);
    else if (final === "A") this.row = Math.max(top, this.row - (first || 1));
    else if (final === "B") this.downBy(Math.min(first || 1, this.height));
    else if (final === "C") this.column = Math.min(this.width - 1, this.column + (first || 1));
    else if (final === "D") this.column = Math.max(0, this.column - (first || 1));
    else if (final === "G") this.column = Math.min(this.width, Math.max(1, first)) - 1;
    else if (final === "H" || final === "f") {
      this.row = top;
      this.downBy(Math.min(first || 1, this.height) - 1);
      this.column = Math.min(this.width, Math.max(1, numbers[1] || 1)) - 1;
    }
  }

  downBy(rows) {
    for (let n = 0; n < rows; n += 1) this.down();
  }

  eraseScreen(mode, top) {
    if (mode >= 2) {
      while (this.lines.length < this.row + 1 + this.height && this.lines.at(-1).length) this.lines.push([]);
      this.wipeFrom(top);
      this.row = top;
      this.column = 0;
    } else if (mode === 0) {
      this.erase(0);
      this.wipeFrom(this.row + 1);
    }
  }

  erase(mode) {
    const line = this.lines[this.row];
    if (mode === 0) line.length = Math.min(line.length, this.column);
    else if (mode === 2) line.length = 0;
    else line.fill(BLANK, 0, this.column + 1);
    this.dirty.add(this.row);
  }

  wipeFrom(first) {
    for (let row = first; row < this.lines.length; row += 1) {
      this.lines[row] = [];
      this.dirty.add(row);
    }
  }

  paint(numbers) {
    let style = { ...this.style };
    for (let index = 0; index < numbers.length; index += 1) {
      const code = numbers[index] || 0;
      if (code === 0) style = { ...PLAIN };
      else if (code in ATTRIBUTES) Object.assign(style, ATTRIBUTES[code]);
      else if (code >= 30 && code <= 37) style.fg = `f${code - 30}`;
      else if (code >= 90 && code <= 97) style.fg = `f${code - 82}`;
      else if (code >= 40 && code <= 47) style.bg = `b${code - 40}`;
      else if (code === 38 || code === 48) {
        const [colour, used] = extendedColour(numbers, index + 1);
        if (code === 38) style.fg = colour;
        else style.bg = colour.replace(/^f(\d+)$/, (_, n) => `b${n % 8}`);
        index += used;
      }
    }
    this.style = Object.freeze(style);
  }

  schedule() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.flush();
    });
  }

  flush() {
    this.cutScrollback();
    const atEnd = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 24;
    for (let row = this.nodes.length; row < this.lines.length; row += 1) {
      this.nodes.push(h("div"));
      this.element.append(this.nodes[row]);
      this.dirty.add(row);
    }
    for (const row of this.dirty) if (this.nodes[row]) replace(this.nodes[row], ...spans(this.lines[row] ?? []));
    this.dirty.clear();
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }

  cutScrollback() {
    const excess = this.lines.length - this.scrollback;
    if (excess <= 0) return;
    this.lines.splice(0, excess);
    for (const node of this.nodes.splice(0, excess)) node.remove();
    this.row = Math.max(0, this.row - excess);
    this.dirty = new Set([...this.dirty].map((row) => row - excess).filter((row) => row >= 0));
    this.cut += excess;
  }

  get lineCount() {
    return this.cut + this.lines.length;
  }
}

// Whether a later write may complete the escape sequence that begins here.
function mayGrow(input, at) {
  const next = input[at + 1];
  if (next === undefined) return true;
  const rest = input.slice(at + 2);
  return next === "[" ? /^[0-9;:<=>?]*[ -\/]*$/.test(rest) : "]PX^_".includes(next) && !/\x1b(?!\\?$)/.test(rest);
}

// Control characters, and marks of writing direction.
function isUnseen(code) {
  const control = code < 32 || (code >= 127 && code < 160);
  return control || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

function spans(line) {
  const drawn = [];
  let start = 0;
  for (let at = 1; at <= line.length; at += 1) {
    if (at < line.length && line[at].style === line[start].style) continue;
    const text = line.slice(start, at).map((cell) => cell.character);
    drawn.push(span(text.join(""), line[start].style));
    start = at;
  }
  return drawn;
}

function span(text, style) {
  if (style === PLAIN) return document.createTextNode(text);
  const [fg, bg] = style.inverse ? inverted(style) : [style.fg, style.bg];
  const names = [
    style.bold && "t-bold",
    style.dim && "t-dim",
    style.italic && "t-italic",
    style.under && "t-under",
    isExact(fg) ? "" : fg,
    isExact(bg) ? "" : bg,
  ];
  const node = h("span", { class: names.filter(Boolean).join(" ") }, text);
  if (isExact(fg)) node.style.color = fg;
  if (isExact(bg)) node.style.backgroundColor = bg;
  return node;
}

function inverted({ fg, bg }) {
  return [bg.replace("b", "f") || "f0", fg.replace("f", "b") || "b7"];
}

// A colour without a class in the style sheet.
function isExact(colour) {
  return colour.startsWith("rgb");
}

function extendedColour(numbers, at) {
  if (numbers[at] === 2) return [rgb(numbers.slice(at + 1, at + 4)), 4];
  const code = numbers[at + 1] || 0;
  if (code < 16) return [`f${code}`, 2];
  if (code >= 232) return [rgb([8, 8, 8].map((base) => base + 10 * (code - 232))), 2];
  const cube = [Math.floor((code - 16) / 36), Math.floor((code - 16) / 6) % 6, (code - 16) % 6];
  return [rgb(cube.map((part) => (part ? 55 + 40 * part : 0))), 2];
}

function rgb(parts) {
  return `rgb(${[0, 1, 2].map((index) => Math.min(255, Math.max(0, parts[index] || 0))).join(",")})`;
}
