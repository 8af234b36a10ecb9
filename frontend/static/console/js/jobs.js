// The job list: selection that outlives fresh rows and other pages of the list, the bar for it, the dialog of acts.
import { $, $$ } from "./dom.js";
import { watchActs } from "./jobs-acts.js";
import { Bar } from "./jobs-bar.js";
import { Selection } from "./jobs-selection.js";

const form = $("#chosen"), rows = $("#rows");
const selection = new Selection(form.dataset.tenant);
const bar = new Bar($("[data-bar]"), selection);

const jobOf = (row) => ({ id: row.dataset.job, number: Number(row.dataset.number), name: row.dataset.name });

// The rows say what is selected: after every change, and after they were read anew.
function show() {
  const all = $$("[data-row]", rows);
  for (const row of all) {
    const on = selection.has(row.dataset.job);
    $("input[data-row-select]", row).checked = on;
    row.classList.toggle("sel", on);
  }
  const whole = $("[data-pick-all]", rows), count = $$("tr.sel", rows).length;
  if (whole) {
    whole.checked = count > 0 && count === all.length;
    whole.indeterminate = count > 0 && count < all.length;
  }
  bar.show(new Set(all.map((row) => row.dataset.job)));
}

rows.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-row-select]")) selection.set([jobOf(box.closest("[data-row]"))], box.checked);
  else if (box.matches("[data-pick-all]")) selection.set($$("[data-row]", rows).map(jobOf), box.checked);
});
selection.onChange = show;
document.body.addEventListener("htmx:afterSwap", (event) => { if (event.detail.target === rows) show(); });
addEventListener("pageshow", (event) => { if (event.persisted) { selection.read(); show(); } });

// Empty fields do not belong in an address that people share.
$("[data-filters]").addEventListener("formdata", (event) => {
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});
// Each choice applies at once; the button is for those without script.
$("[data-filter]").hidden = true;

watchActs({ onDone: (ids) => { selection.drop(ids); document.body.dispatchEvent(new CustomEvent("joynexus:jobs")); } });
show();
