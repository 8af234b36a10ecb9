// The strip of episodes: a hundred at a time, all or those of one instruction.
import { $, $$ } from "./dom.js";
import { asked } from "./episode-api.js";

const PER_PAGE = 100;

export class EpisodeList {
  #page = 0;
  #asked = 0;
  rows = [];

  /** @param {{api: string, episodes: number}} data  @param {(index: number) => void} onChoose */
  constructor(root, data, onChoose) {
    Object.assign(this, { root, data, onChoose, list: $("[data-list]", root), filter: $("[data-task-filter]", root) });
    this.filter?.addEventListener("change", () => this.show(1));
    $("[data-back]", root).addEventListener("click", () => this.show(this.#page - 1));
    $("[data-on]", root).addEventListener("click", () => this.show(this.#page + 1));
    this.list.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.onChoose(Number(button.dataset.index));
    });
    this.list.addEventListener("keydown", (event) => this.#walk(event));
  }

  // The page that holds an episode, while no instruction is chosen: numbers go up by one in a valid recording.
  async reveal(index) {
    const page = Math.floor(index / PER_PAGE) + 1;
    if (!this.filter?.value && page !== this.#page) await this.show(page);
    this.mark(index);
  }

  async show(page) {
    const turn = ++this.#asked;
    const query = new URLSearchParams({ page });
    if (this.filter?.value) query.set("task", this.filter.value);
    const { told, fault } = await asked(`${this.data.api}/preview?${query}`);
    if (turn !== this.#asked) return;
    if (fault) {
      this.list.replaceChildren(Object.assign(document.createElement("p"), { className: "pad muted", textContent: fault }));
      return;
    }
    this.#page = page;
    this.rows = told.episodes;
    this.list.replaceChildren(...told.episodes.map((row) => this.#button(row)));
    this.list.scrollTop = 0;
    this.#pages(told);
    this.mark(this.chosen);
  }

  mark(index) {
    this.chosen = index;
    for (const button of $$("button", this.list)) {
      const here = Number(button.dataset.index) === index;
      if (here) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      if (here) this.#scrollTo(button);
    }
  }

  // The episode before (-1) or after (1) the chosen one, as the list shows them; null at its ends.
  beside(step) {
    const place = this.rows.findIndex((row) => row.index === this.chosen);
    if (place >= 0 && this.rows[place + step]) return this.rows[place + step].index;
    const next = this.chosen + step;
    return !this.filter?.value && next >= 0 && next < this.data.episodes ? next : null;
  }

  #button(row) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.index = row.index;
    const parts = [row.index, row.task || "no instruction", `${(row.length / this.data.hz).toFixed(1)}\u00a0s`];
    for (const [place, text] of parts.entries()) {
      const part = document.createElement("span");
      part.textContent = text;
      if (place !== 1) part.className = "muted";
      button.append(part);
    }
    if (row.success_once !== null) button.append(this.#outcome(row.success_once));
    button.title = `Episode ${row.index}, ${row.length} frames${row.seed === null ? "" : `, seed ${row.seed}`}: ${row.task}`;
    return button;
  }

  #outcome(success) {
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg"), use = document.createElementNS("http://www.w3.org/2000/svg", "use");
    mark.setAttribute("class", `i outcome ${success ? "good" : "bad"}`);
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", success ? "Success once" : "No success");
    use.setAttribute("href", success ? "#s-succeeded" : "#s-failed");
    mark.append(use);
    return mark;
  }

  #pages(told) {
    const bar = $("[data-pages]", this.root), first = (told.page - 1) * PER_PAGE;
    bar.hidden = told.pages < 2;
    $("[data-place]", bar).textContent = `${first + 1}–${first + told.episodes.length} of ${told.total.toLocaleString("en")}`;
    $("[data-back]", bar).disabled = told.page <= 1;
    $("[data-on]", bar).disabled = told.page >= told.pages;
  }

  // Within the strip only: the page itself stays where it is.
  #scrollTo(button) {
    const top = button.offsetTop - this.list.offsetTop, low = this.list.scrollTop, high = low + this.list.clientHeight;
    if (top < low || top + button.offsetHeight > high) this.list.scrollTop = top - this.list.clientHeight / 2;
  }

  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = step && (step > 0 ? event.target.nextElementSibling : event.target.previousElementSibling);
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}
