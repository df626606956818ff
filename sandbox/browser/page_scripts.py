"""The JavaScript that runs in pages: each is a function of an element (``this``) or of the page."""

from __future__ import annotations

PAGE_FACTS = """(() => {
  const all = document.getElementsByTagName('*').length, box = document.scrollingElement;
  return {elements: all, scrolled: Math.round(box ? box.scrollTop : 0),
    scrollable: box ? Math.max(0, Math.round(box.scrollHeight - box.clientHeight)) : 0};
})()"""
"""How large the page is, and how far it is scrolled."""

PAGE_TEXT = "(document.body ? document.body.innerText : '')"

TEXT_SLICE = (
    """((from, to) => { const text = %s; return {text: text.slice(from, to), length: text.length}; })(%d, %d)"""
)

FIND = """(() => { try { return document.querySelector(%s); } catch (error) { return 'invalid'; } })()"""
"""The first element that a CSS selector finds; 'invalid' if it is none."""

PRESS_BY_SCRIPT = """function() {
  const tag = this.tagName;
  if (tag === 'OPTION') {
    const box = this.closest('select');
    if (!box || box.matches(':disabled') || this.matches(':disabled')) return 'is disabled';
    if (box.multiple) this.selected = !this.selected; else box.value = this.value, this.selected = true;
    for (const kind of ['input', 'change']) box.dispatchEvent(new Event(kind, {bubbles: true}));
    return 'done';
  }
  if (tag === 'SELECT' && !this.multiple && this.size < 2) return 'is a list of options: click one of its options';
  if (tag === 'INPUT' && this.type === 'file') return 'asks for a file, and there is none to give';
  return this.matches(':disabled') ? 'is disabled' : '';
}"""
"""What a click does without a mouse: 'done'; the reason why it cannot be done; empty if a mouse is needed."""

COVERED_BY = """function() {
  const root = this.getRootNode(), box = this.getBoundingClientRect();
  const x = box.left + box.width / 2, y = box.top + box.height / 2;
  const front = (root.elementFromPoint ? root : document).elementFromPoint(x, y);
  const own = [this, ...(this.labels || [])];
  if (!front || front.contains(this) || own.some(each => each.contains(front))) return '';
  const text = (front.innerText || '').trim().replace(/\\s+/g, ' ').slice(0, 60);
  const name = front.tagName.toLowerCase() + (front.id ? '#' + front.id : '');
  return text ? name + ' that says ' + JSON.stringify(text) : name;
}"""
"""The element that is in front of the middle of this one; empty if it is in front itself."""

CLICK_BY_SCRIPT = "function() { this.click(); return ''; }"

PREPARE_TYPING = """function(text) {
  const tag = this.tagName, kind = (this.type || '').toLowerCase();
  if (this.matches(':disabled')) return 'is disabled';
  if (this.readOnly) return 'is read-only';
  if (tag === 'SELECT') {
    const wanted = text.trim().toLowerCase();
    const found = [...this.options].find(o => [o.label, o.text, o.value].some(t => t.trim().toLowerCase() === wanted));
    if (!found) return 'has no option ' + JSON.stringify(text);
    if (found.matches(':disabled')) return 'has that option, but it is disabled';
    found.selected = true;
    for (const kind of ['input', 'change']) this.dispatchEvent(new Event(kind, {bubbles: true}));
    return 'done';
  }
  if (tag === 'INPUT' && ['checkbox', 'radio', 'button', 'submit', 'reset', 'image', 'file'].includes(kind))
    return 'takes no text: it is of the kind ' + kind;
  if (tag === 'INPUT' && ['date', 'time', 'month', 'week', 'datetime-local', 'color', 'range'].includes(kind)) {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(this, text);
    for (const kind of ['input', 'change']) this.dispatchEvent(new Event(kind, {bubbles: true}));
    return this.value === text ? 'done' : 'does not take ' + JSON.stringify(text) + ' as a ' + kind;
  }
  if (tag !== 'INPUT' && tag !== 'TEXTAREA' && !this.isContentEditable) return 'takes no text';
  this.focus();
  if (this.isContentEditable) getSelection().selectAllChildren(this); else this.select();
  return '';
}"""
"""Selects what an element holds, so that typed text replaces it: empty; 'done' if the text is set; else the reason why
it takes none."""
