// The list of policies: which are chosen to compare, kept while the list is read anew.
import { $, $$ } from "./dom.js";

const bar = $("[data-compare-bar]"), max = Number(bar.dataset.max);
const chosen = new Map(); // id -> {name, slot}

function show() {
  for (const box of $$("[data-row-select]")) {
    box.checked = chosen.has(box.value);
    box.closest("tr").classList.toggle("sel", box.checked);
  }
  bar.hidden = chosen.size === 0;
  $("[data-chips]", bar).replaceChildren(...[...chosen].map(([id, { name, slot }]) => chip(id, name, slot)));
  $("[data-go]", bar).disabled = chosen.size < 2;
  $("[data-chosen]", bar).textContent = chosen.size < 2 ? "Choose one more" : chosen.size === max ? `${max} at most` : "";
}

function chip(id, name, slot) {
  const element = document.createElement("label"), dot = document.createElement("i"), words = document.createElement("span"), field = document.createElement("input");
  element.className = "chip";
  dot.className = `dot r${slot}`;
  words.textContent = name;
  Object.assign(field, { type: "hidden", name: "policy", value: id });
  element.append(dot, words, field);
  return element;
}

document.addEventListener("change", (event) => {
  const box = event.target.closest("[data-row-select]");
  if (!box) return;
  if (box.checked && chosen.size < max) chosen.set(box.value, { name: box.dataset.name, slot: box.dataset.slot });
  else chosen.delete(box.value);
  show();
});
$("[data-clear]", bar).addEventListener("click", () => { chosen.clear(); show(); });
document.addEventListener("htmx:load", show);
show();
