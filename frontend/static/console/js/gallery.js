// The videos of a job: loaded when they come into view, filtered by the server, two of them side by side.
import { $, $$ } from "./dom.js";
import { Fragment, keepingFocus } from "./fragment.js";

export class Gallery {
  #chosen = []; // ids, at most two, in the order of choosing
  #shown = null; // how many, once "show more" was used
  #observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) start(target, this.#observer);
  }, { rootMargin: "300px" });

  constructor(card) {
    this.card = card;
    this.body = $("[data-videos-body]", card);
    this.fragment = new Fragment(card.dataset.videos, this.body, { onLoad: (fresh) => this.#show(fresh) });
    this.opener = $("[data-compare-open]", card);
    this.dialog = document.getElementById("compare");
    this.opener.addEventListener("click", () => this.#compare());
    this.dialog.addEventListener("close", () => $("[data-pair]", this.dialog).replaceChildren());
    for (const button of $$("[data-both]", this.dialog)) button.addEventListener("click", () => this.#both(button.dataset.both));
    this.body.addEventListener("change", (event) => this.#changed(event.target));
    this.body.addEventListener("submit", (event) => { event.preventDefault(); this.filter(); });
    this.body.addEventListener("click", (event) => {
      const more = event.target.closest("[data-more]");
      if (more) { this.#shown = more.dataset.more; this.refresh(); }
    });
    this.#watch();
  }

  // Called when a new video was published. A failure is no harm: the next one asks again.
  refresh() {
    return this.fragment.load(this.#shown ? { shown: this.#shown } : {}).catch(() => {});
  }

  filter() {
    this.#shown = null;
    const query = this.fragment.query().toString();
    history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    return this.refresh();
  }

  #changed(control) {
    if (control.matches("[data-compare]")) this.#choose(control);
    else if (control.form) this.filter();
  }

  #show(fresh) {
    keepingFocus(this.body, () => {
      const shelf = $("[data-gallery]", this.body), next = $("[data-gallery]", fresh);
      if (shelf && next) putAround(shelf, next);
      else this.body.replaceChildren(...fresh.childNodes);
    });
    this.#chosen = this.#chosen.filter((id) => $(`figure[data-id="${id}"]`, this.body));
    this.#mark();
    this.#watch();
  }

  #watch() {
    for (const video of $$("video[data-src]", this.body)) this.#observer.observe(video);
  }

  #choose(box) {
    this.#chosen = this.#chosen.filter((id) => id !== box.value);
    if (box.checked) this.#chosen = [...this.#chosen, box.value].slice(-2); // a third takes the place of the first
    this.#mark();
  }

  #mark() {
    for (const box of $$("[data-compare]", this.body)) box.checked = this.#chosen.includes(box.value);
    this.opener.hidden = this.#chosen.length < 2;
  }

  #compare() {
    const figures = this.#chosen.map((id) => $(`figure[data-id="${id}"]`, this.body).cloneNode(true));
    for (const figure of figures) {
      $(".cap3", figure)?.remove();
      start($("video", figure));
    }
    $("[data-pair]", this.dialog).replaceChildren(...figures);
    this.dialog.showModal();
  }

  #both(what) {
    for (const video of $$("video", this.dialog)) {
      if (what === "play") video.play();
      else video.pause();
      if (what === "start") video.currentTime = 0;
    }
  }
}

function start(video, observer) {
  observer?.unobserve(video);
  if (video.dataset.src) { video.src = video.dataset.src; delete video.dataset.src; }
}

// Exchanges everything around the films; a film that is there already is not touched, so nobody's playback stops.
function putAround(shelf, next) {
  const nodes = [...next.parentNode.childNodes], at = nodes.indexOf(next);
  for (const node of [...shelf.parentNode.childNodes]) if (node !== shelf) node.remove();
  shelf.before(...nodes.slice(0, at));
  shelf.after(...nodes.slice(at + 1));
  const wanted = [...next.children], ids = new Set(wanted.map((figure) => figure.dataset.id));
  for (const figure of [...shelf.children]) if (!ids.has(figure.dataset.id)) figure.remove();
  let place = shelf.firstElementChild;
  for (const figure of wanted) {
    if (place?.dataset.id === figure.dataset.id) { place = place.nextElementSibling; continue; }
    const own = $(`figure[data-id="${figure.dataset.id}"]`, shelf);
    shelf.insertBefore(own ?? figure, place);
  }
}
