// The bar under the list: which jobs are selected, and the way to compare them.
import { $ } from "./dom.js";

const SLOTS = 10, CHIPS_SHOWN = 6;

const make = (tag, { text, ...own } = {}) => {
  const element = Object.assign(document.createElement(tag), own);
  if (text !== undefined) element.textContent = text;
  return element;
};

export class Bar {
  constructor(root, selection) {
    Object.assign(this, { root, selection, max: Number(root.dataset.comparedMax) });
    $("[data-pick-none]", root).addEventListener("click", () => selection.drop(selection.jobs.map((job) => job.id)));
    $("[data-to-compare]", root)?.addEventListener("click", (event) => { if (this.#tooMany) event.preventDefault(); });
  }

  get #tooMany() { return this.selection.size > this.max; }

  // `onPage`: ids of the rows in sight; the others are sent by fields of their own.
  show(onPage) {
    const jobs = this.selection.jobs;
    this.root.hidden = jobs.length === 0;
    $("[data-n]", this.root).textContent = `${jobs.length} selected`;
    $("[data-chips]", this.root).replaceChildren(...this.#chips(jobs));
    const elsewhere = jobs.filter((job) => !onPage.has(job.id));
    $("[data-elsewhere]", this.root).replaceChildren(...elsewhere.map((job) => make("input", { type: "hidden", name: "job", value: job.id })));
    this.#compare(jobs);
  }

  #chips(jobs) {
    const chips = jobs.slice(0, CHIPS_SHOWN).map((job) => {
      const chip = make("span", { className: "chip" });
      const off = make("button", { type: "button", text: "×", title: `Unselect ${job.name}` });
      off.setAttribute("aria-label", `Unselect ${job.name}`);
      off.addEventListener("click", () => { this.selection.drop([job.id]); ($("button, a", this.root) ?? document.body).focus(); });
      const swatch = make("i", { className: `swatch r${((job.number - 1) % SLOTS) + 1}` });
      chip.append(swatch, make("span", { text: job.name, title: `J-${job.number}` }), off);
      return chip;
    });
    if (jobs.length > CHIPS_SHOWN) chips.push(make("span", { className: "chip", text: `+${jobs.length - CHIPS_SHOWN}` }));
    return chips;
  }

  #compare(jobs) {
    const link = $("[data-to-compare]", this.root), why = $("[data-why]", this.root);
    if (!link) return;
    const query = new URLSearchParams(jobs.slice(0, this.max).map((job) => ["job", job.id]));
    link.href = `${this.root.dataset.compare}?${query}`;
    link.toggleAttribute("data-off", this.#tooMany);
    if (this.#tooMany) link.setAttribute("aria-disabled", "true"); else link.removeAttribute("aria-disabled");
    why.hidden = !this.#tooMany;
    const text = this.#tooMany ? `Up to ${this.max} jobs can be compared; unselect ${jobs.length - this.max}.` : "";
    if (why.textContent !== text) why.textContent = text;
  }
}
