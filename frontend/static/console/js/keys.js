// The keys of every page. Never while somebody types, never with Ctrl, Alt or Meta, never behind a dialog.
import { $, $$ } from "./dom.js";

const typing = (element) => element.matches("input:not([type=checkbox], [type=radio], [type=range], [type=button]), select, textarea, [contenteditable]");
const visible = (element) => element.offsetParent !== null;

function row() {
  return document.activeElement.closest("[data-row]");
}

function move(by) {
  const rows = $$("[data-row]").filter(visible);
  if (!rows.length) return;
  const at = rows.indexOf(row());
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  const link = $("[data-row-link]", next) ?? $("a", next);
  link?.focus();
  next.scrollIntoView({ block: "nearest" });
}

const find = () => { const field = $("[data-find]"); if (field && visible(field)) { field.focus(); field.select(); } else $(".find-link")?.click(); };

const KEYS = {
  "/": find,
  j: () => move(1),
  k: () => move(-1),
  x: () => { const own = row(); if (own) $("input[data-row-select]", own)?.click(); },
  c: () => $$('[data-key="c"]').find(visible)?.click(),
  n: () => { const to = document.body.dataset.newJob; if (to) location.assign(to); },
  "?": () => $("#help").showModal(),
};

function closeMenus() {
  for (const menu of $$("details[data-menu][open]")) {
    const held = menu.contains(document.activeElement);
    menu.open = false;
    if (held) $("summary", menu).focus();
  }
}

export function watchKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") { closeMenus(); return; }
    if (typing(event.target) || $("dialog[open]")) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
