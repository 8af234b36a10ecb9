// What a job made: read anew when it publishes a file, and again and again while a recording is on its way.
import { $ } from "./dom.js";
import { Fragment, keepingFocus } from "./fragment.js";

const EVERY_MS = 3000;

export class Made {
  #timer = 0;

  constructor(card) {
    this.card = card;
    this.body = $("[data-made-body]", card);
    this.fragment = new Fragment(card.dataset.made, this.body, { onLoad: (fresh) => this.#show(fresh) });
    this.#again();
  }

  // A failure is no harm: the next news or the timer asks again.
  refresh() {
    return this.fragment.load().catch(() => {}).then(() => this.#again());
  }

  #show(fresh) {
    keepingFocus(this.body, () => this.body.replaceChildren(...fresh.childNodes));
    this.card.hidden = !$("dl", this.body);
  }

  #again() {
    clearTimeout(this.#timer);
    if ($("[data-under-way]", this.body)) this.#timer = setTimeout(() => this.refresh(), EVERY_MS);
  }
}
