// Live parts (`data-part`) are not exchanged under the hands of whoever works in them: they are asked for again as
// soon as that ends. One that could not be read is asked for again too.
const AGAIN_MS = 300, RETRY_MS = 3000;
const TYPED = "input:not([type=checkbox][id], [type=radio][id]), select, textarea, [contenteditable]";
const OPENED = "dialog[open], details[data-menu][open], video:fullscreen";
const owed = new Set();
let timer = 0;

function inUse(part) {
  const held = document.activeElement, marked = getSelection();
  if (part.contains(held) && held.matches(TYPED)) return true;
  if (part.querySelector(OPENED)) return true;
  return !marked.isCollapsed && part.contains(marked.anchorNode);
}

function owe(part) {
  owed.add(part);
}

// Those that are free now are read; the others stay owed.
export function askAgain() {
  for (const part of [...owed]) {
    if (!part.isConnected) owed.delete(part);
    else if (!inUse(part)) {
      owed.delete(part);
      htmx.ajax("GET", part.getAttribute("hx-get"), { source: part });
    }
  }
}

function soon(wait) {
  clearTimeout(timer);
  if (owed.size) timer = setTimeout(askAgain, wait);
}

export function watchParts() {
  const part = (event) => (event.detail.elt.matches?.("[data-part]") ? event.detail.elt : null);
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const own = part(event);
    if (own && inUse(own)) { event.preventDefault(); owe(own); }
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const own = event.detail.requestConfig?.elt;
    if (own?.matches("[data-part]") && inUse(own)) { event.detail.shouldSwap = false; owe(own); }
  });
  for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.body.addEventListener(name, (event) => { const own = part(event); if (own) { owe(own); soon(RETRY_MS); } });
  }
  for (const name of ["focusout", "toggle", "close", "fullscreenchange"]) document.addEventListener(name, () => soon(AGAIN_MS), true);
  document.addEventListener("selectionchange", () => { if (getSelection().isCollapsed) soon(AGAIN_MS); });
}
