// The list of an evaluation's episodes, read out of the report when the card comes into view.
import { $ } from "./dom.js";
import { Fragment, keepingFocus } from "./fragment.js";

const known = new WeakSet();

export function showEpisodes(card) {
  if (known.has(card)) return;
  known.add(card);
  const body = $("[data-episodes-body]", card);
  const fragment = new Fragment(card.dataset.episodes, body, { onLoad: (fresh) => keepingFocus(body, () => body.replaceChildren(...fresh.childNodes)) });
  const load = (more) => fragment.load(more).catch(() => { if (!$("form", body)) $("p", body).textContent = "The episodes could not be read. Reload the page to try again."; });
  body.addEventListener("change", () => load());
  body.addEventListener("submit", (event) => event.preventDefault());
  body.addEventListener("click", (event) => {
    const button = event.target.closest("[data-page]");
    if (button) load({ page: button.dataset.page });
  });
  const observer = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    load();
  }, { rootMargin: "400px" });
  observer.observe(card);
}
