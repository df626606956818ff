// Builds elements.  Text only ever enters as text nodes, so nothing that a sandbox printed can become markup.

const SVG = "http://www.w3.org/2000/svg";
const nothing = (value) => value === undefined || value === null || value === false;

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => !nothing(child)));
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (nothing(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width" && element instanceof HTMLElement) element.style.width = value;
    else if (name === "height" && element instanceof HTMLElement) element.style.height = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  replace(element, ...children);
  return element;
}
