// The theme by name; the button of the top bar and this form say the same.
import { $, $$, setText } from "./dom.js";
import { setTheme } from "./shell.js";

const choices = $$("input", $("[data-themes]"));
const show = () => { for (const choice of choices) choice.checked = choice.value === (document.documentElement.dataset.theme ?? "system"); };

for (const choice of choices) choice.addEventListener("change", () => setTheme(choice.value));
addEventListener("joynexus:theme", show);
setText("[data-zone]", Intl.DateTimeFormat().resolvedOptions().timeZone);
show();
