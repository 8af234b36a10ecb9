// The films of a job: filtered by the server page by page, alive while others arrive, up to four of them side by side.
import { $, $$ } from "./dom.js";
import { enliven, watch } from "./film.js";
import { Fragment, keepingFocus } from "./fragment.js";
import { SideBySide } from "./side-by-side.js";

const TOGETHER_MAX = 4;
const known = new WeakMap(); // card -> its gallery: whoever asks again gets the same

export class Gallery {
  #chosen = new Map(); // id -> figure, in the order of choosing; kept over pages and filters
  #page = "";

  constructor(card) {
    if (known.has(card)) return known.get(card);
    known.set(card, this);
    this.card = card;
    this.body = $("[data-videos-body]", card);
    this.fragment = new Fragment(card.dataset.videos, this.body, { onLoad: (fresh) => this.#show(fresh) });
    this.dialog = new SideBySide(document.getElementById("compare"));
    this.opener = $("[data-compare-open]", card);
    this.opener.addEventListener("click", () => this.dialog.show([...this.#chosen.values()]));
    $("[data-compare-clear]", card).addEventListener("click", () => { this.#chosen.clear(); this.#mark(); });
    this.body.addEventListener("change", (event) => this.#changed(event.target));
    this.body.addEventListener("submit", (event) => { event.preventDefault(); this.filter(); });
    this.body.addEventListener("click", (event) => this.#clicked(event));
    document.body.addEventListener("joynexus:films", () => { if (this.card.isConnected) this.refresh(); });
    this.#page = new URLSearchParams(location.search).get("page") ?? "";
    enliven(this.body);
    watch(this.body);
  }

  // Called when a new film was published. A failure is no harm: the next one asks again.
  refresh() {
    return this.fragment.load(this.#page ? { page: this.#page } : {}).catch(() => {});
  }

  // Another filter begins on its first page.
  filter(page = "") {
    this.#page = page;
    const query = this.fragment.query(page ? { page } : {}).toString();
    history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    return this.refresh();
  }

  #changed(control) {
    if (control.matches("[data-compare]")) this.#choose(control);
    else if (control.form) this.filter();
  }

  #clicked(event) {
    const page = event.target.closest("[data-page]"), row = event.target.closest("[data-row-play]");
    if (page) this.filter(page.dataset.page).then(() => this.card.scrollIntoView({ block: "start" }));
    if (row) this.dialog.show($$("figure", row.closest(".start")).slice(0, TOGETHER_MAX));
  }

  #show(fresh) {
    keepingFocus(this.body, () => {
      const shelf = $("[data-gallery]", this.body), next = $("[data-gallery]", fresh);
      if (shelf && next && shelf.className === next.className) putAround(shelf, next);
      else this.body.replaceChildren(...fresh.childNodes);
    });
    for (const id of this.#chosen.keys()) {
      const shown = $(`figure[data-id="${CSS.escape(id)}"]`, this.body);
      if (shown) this.#chosen.set(id, shown);
    }
    this.#mark();
    watch(this.body);
  }

  #choose(box) {
    this.#chosen.delete(box.value);
    if (box.checked) this.#chosen.set(box.value, box.closest("figure"));
    if (this.#chosen.size > TOGETHER_MAX) this.#chosen.delete(this.#chosen.keys().next().value); // the first makes room
    this.#mark();
  }

  #mark() {
    for (const box of $$("[data-compare]", this.body)) box.checked = this.#chosen.has(box.value);
    const count = this.#chosen.size;
    this.opener.hidden = count < 2;
    this.opener.textContent = `Play ${count} side by side`;
    $("[data-compare-clear]", this.card).hidden = count === 0;
  }
}

// Exchanges everything around the films; a film that is there already is not touched, so nobody's playback stops.
function putAround(shelf, next) {
  const nodes = [...next.parentNode.childNodes], at = nodes.indexOf(next);
  for (const node of [...shelf.parentNode.childNodes]) if (node !== shelf) node.remove();
  shelf.before(...nodes.slice(0, at));
  shelf.after(...nodes.slice(at + 1));
  const wanted = [...next.children], ids = new Set(wanted.map((item) => item.dataset.id));
  const old = new Map([...shelf.children].map((item) => [item.dataset.id, item]));
  for (const [id, item] of old) if (!ids.has(id)) item.remove();
  for (const [place, item] of wanted.entries()) {
    const own = old.get(item.dataset.id) ?? item;
    if (shelf.children[place] !== own) shelf.insertBefore(own, shelf.children[place] ?? null);
  }
}
