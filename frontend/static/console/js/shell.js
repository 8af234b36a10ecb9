// Small behaviours of every page: theme, times in the viewer's zone, menus, dialogs, search, selects that submit.
import { $, $$ } from "./dom.js";
import { watchCopies } from "./copy.js";
import { watchFinder } from "./finder.js";
import { watchKeys } from "./keys.js";
import { showTimes, tickAges } from "./times.js";
import { showToasts } from "./toast.js";

const NEXT = { system: "light", light: "dark", dark: "system" };

function themeNow() {
  return document.documentElement.dataset.theme ?? "system";
}

export function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem("joynexus-theme");
    else localStorage.setItem("joynexus-theme", theme);
  } catch { /* not stored: holds for this page */ }
  label();
  dispatchEvent(new CustomEvent("joynexus:theme"));
}

const toggle = $("[data-theme-toggle]");
function label() {
  toggle?.setAttribute("aria-label", `Theme: ${themeNow() === "system" ? "follow system" : themeNow()}`);
}
toggle?.addEventListener("click", () => setTheme(NEXT[themeNow()]));
label();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new CustomEvent("joynexus:theme")));

// Listened for at the document: parts of a page come and go.
document.addEventListener("click", (event) => {
  const own = event.target.closest("[data-open], [data-close]");
  if (own?.dataset.open !== undefined) document.getElementById(own.dataset.open)?.showModal();
  else own?.closest("dialog")?.close();
  for (const menu of $$("details[data-menu][open]")) if (!menu.contains(event.target) || own) menu.open = false;
});
document.addEventListener("change", (event) => { if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit(); });
document.addEventListener("focusin", (event) => { for (const menu of $$("details[data-menu][open]")) if (!menu.contains(event.target)) menu.open = false; });

document.body.addEventListener("htmx:load", (event) => showTimes(event.detail.elt));
// A session that ended answers with the log-in: that is a page, not a part of one.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (new URL(event.detail.xhr.responseURL || location.href).pathname !== "/login/") return;
  event.detail.shouldSwap = false;
  location.reload();
});

showTimes(document);
tickAges();
showToasts();
watchCopies();
watchKeys();
watchFinder();
