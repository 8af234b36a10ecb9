// The form of a new job, beside htmx: folds and the chosen language stay over swaps, changes and refusals are marked
// where they are, Enter asks for the estimate and never spends, and one press submits once.
import { $, $$ } from "./dom.js";

const form = $("[data-new-job]");
const open = new Set(), touched = new Set(), late = new Map(), lateBoxes = new Map();
let shownAs = "curl";


function showCode(as) {
  shownAs = as;
  for (const button of $$("[data-as]", form)) button.setAttribute("aria-pressed", String(button.dataset.as === as));
  for (const code of $$("[data-code]", form)) code.hidden = code.dataset.code !== as;
}

function reopen() {
  for (const fold of $$("details.fold", form)) {
    if (open.has(fold.id)) fold.open = true;
    else if (fold.open) open.add(fold.id);
  }
}

// What a field comes to: what is ticked, or its text, else the default that it shows.
function effective(field) {
  const boxes = $$("input[type=checkbox]", field);
  if (boxes.length) return boxes.filter((box) => box.checked).map((box) => box.value).join(", ") || "off";
  const control = $("input:not([type=radio]), select, textarea", field);
  return control ? control.value.trim() || field.dataset.default || "" : $("input[type=radio]:checked", field)?.value ?? "";
}

function markChange(field) {
  if (field.dataset.was === undefined) return;
  const changed = effective(field) !== field.dataset.was;
  let mark = $(":scope > .was", field);
  if (changed && !mark) {
    mark = Object.assign(document.createElement("span"), { className: "was", textContent: `was ${field.dataset.was || "empty"}` });
    $(":scope > .help", field)?.before(mark);
  } else if (!changed) mark?.remove();
}

function setError(field, text) {
  const control = $("input:not([type=hidden]), select, textarea", field), id = `f-${field.dataset.field}-error`, error = document.getElementById(id);
  field.toggleAttribute("data-bad", Boolean(text));
  if (text) control?.setAttribute("aria-invalid", "true");
  else control?.removeAttribute("aria-invalid");
  if (!text) { error?.remove(); return; }
  if (error) { error.lastElementChild.textContent = text; return; }
  const fresh = document.createElement("span");
  fresh.id = id;
  fresh.className = "err";
  fresh.append($("#error-mark").content.cloneNode(true));
  fresh.lastElementChild.textContent = text;
  field.append(fresh);
  const told = control?.getAttribute("aria-describedby") ?? "";
  if (control && !told.includes(id)) control.setAttribute("aria-describedby", `${told} ${id}`.trim());
}

// Refusals of the estimate stand beside their fields once somebody was there; those that are gone disappear.
function placeErrors() {
  const refused = new Map($$("[data-at]", form).map((at) => [at.dataset.at, $("[data-detail]", at).textContent]));
  for (const field of $$("[data-field]", form)) {
    const name = field.dataset.field, text = refused.get(name);
    if (text && (touched.has(name) || field.hasAttribute("data-bad"))) setError(field, text);
    else if (!text && touched.has(name)) setError(field, "");
  }
}

function tell(control) {
  for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, { bubbles: true }));
}

// Into the fresh fields; a choice asks for its own fields then.
function putBack() {
  for (const [name, value] of late) {
    const same = $$(`[name="${CSS.escape(name)}"]`, form), control = same.find((one) => one.type !== "radio" || one.value === value);
    if (!control) continue;
    if (control.type === "radio") control.checked = true;
    else control.value = value;
    tell(control);
  }
  for (const [id, checked] of lateBoxes) {
    const control = document.getElementById(id);
    if (!control || control.checked === checked) continue;
    control.checked = checked;
    tell(control);
  }
  late.clear();
  lateBoxes.clear();
}

async function copyCode(button) {
  const text = $(`[data-code="${shownAs}"]`, form).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.lastChild.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren($(`[data-code="${shownAs}"]`, form));
    button.lastChild.textContent = "Selected, press Ctrl+C";
  }
  setTimeout(() => { button.lastChild.textContent = "Copy"; }, 2000);
}

function touch(event) {
  const field = event.target.closest("[data-field]");
  if (!field) return;
  touched.add(field.dataset.field);
  markChange(field);
}

form.addEventListener("input", touch);
form.addEventListener("change", touch);
// Folds that were opened or closed are remembered; the event does not bubble.
form.addEventListener("toggle", (event) => { open[event.target.open ? "add" : "delete"](event.target.id); }, true);
form.addEventListener("click", (event) => {
  const as = event.target.closest("[data-as]"), copy = event.target.closest("[data-copy-code]"), link = event.target.closest('a[href^="#f-"]');
  if (as) showCode(as.dataset.as);
  if (copy) copyCode(copy);
  if (link) {
    const target = document.getElementById(link.hash.slice(1));
    target?.closest("details")?.setAttribute("open", "");
    target?.focus();
  }
});
form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches("input:not([type=radio])")) return;
  event.preventDefault();
  form.dispatchEvent(new CustomEvent("joynexus:judge", { bubbles: true }));
});
form.addEventListener("submit", (event) => {
  if (event.submitter && !event.submitter.matches("[data-submit-job]")) return;
  const button = $("[data-submit-job]", form);
  button.disabled = true;
  button.textContent = "Submitting…";
});
addEventListener("pageshow", () => { // back from the job: the form can be sent again, changed
  const button = $("[data-submit-job]", form);
  button.disabled = false;
  button.textContent = "Start job";
});
// What was typed while fresh fields were on their way is newer than they are.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (event.target.id !== "fields") return;
  const sent = event.detail.requestConfig.formData;
  for (const control of $$("input:not([type=hidden]), textarea, select", $("#fields"))) {
    if (control.type === "checkbox") {
      if (sent.getAll(control.name).includes(control.value) !== control.checked) lateBoxes.set(control.id, control.checked);
      continue;
    }
    if (control.type === "radio" && !control.checked) continue;
    if (sent.has(control.name) && sent.get(control.name) !== control.value) late.set(control.name, control.value);
  }
});

// Told once for each element that came; done once for all of them.
let isFresh = false;
document.body.addEventListener("htmx:afterSettle", (event) => {
  if (isFresh || !form.contains(event.detail.target)) return;
  isFresh = true;
  queueMicrotask(() => {
    isFresh = false;
    putBack();
    reopen();
    showCode(shownAs);
    placeErrors();
  });
});
reopen();
$("#refused")?.focus();
