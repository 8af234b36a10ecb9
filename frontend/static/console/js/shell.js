// Small behaviours of every page: theme, times in the viewer's zone, dialogs, selects that submit.
import { $, $$ } from "./dom.js";
import { showTimes } from "./times.js";

const NEXT = { system: "light", light: "dark", dark: "system" };

function themeNow() {
  return document.documentElement.dataset.theme ?? "system";
}

function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem("joynexus-theme");
    else localStorage.setItem("joynexus-theme", theme);
  } catch { /* not stored: holds for this page */ }
  dispatchEvent(new CustomEvent("joynexus:theme"));
}

const toggle = $("[data-theme-toggle]");
const label = () => toggle?.setAttribute("aria-label", `Theme: ${themeNow() === "system" ? "follow system" : themeNow()}`);
toggle?.addEventListener("click", () => { setTheme(NEXT[themeNow()]); label(); });
label();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new CustomEvent("joynexus:theme")));

for (const button of $$("[data-open]")) button.addEventListener("click", () => document.getElementById(button.dataset.open).showModal());
for (const button of $$("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
for (const select of $$("select[data-submit]")) select.addEventListener("change", () => select.form.requestSubmit());
showTimes(document);
