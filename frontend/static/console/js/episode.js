// The episode browser: list, cameras and curves at one frame; the address holds version, episode and frame.
import { $, pageData } from "./dom.js";
import { asked } from "./episode-api.js";
import { EpisodeList } from "./episode-list.js";
import { Player } from "./episode-player.js";
import { EpisodePlots } from "./episode-plots.js";

const POINTS = 2000;

class Browser {
  #asked = 0;

  constructor(root) {
    this.root = root;
    this.card = $("[data-episode]", root);
    this.data = pageData("browser-data");
    this.list = new EpisodeList(root, this.data, (index) => this.open(index, 0));
    this.plots = new EpisodePlots(this.card, (frame) => this.player.seek(frame));
    this.player = new Player($("[data-cams]", root), this.data, { onFrame: (frame) => this.#at(frame), onState: (playing) => this.#state(playing) });
    this.scrub = $("[data-scrub]", root);
    this.scrub.addEventListener("input", () => this.player.seek(Number(this.scrub.value)));
    $("[data-play]", root).addEventListener("click", () => this.player.toggle());
    $("[data-previous]", root).addEventListener("click", () => this.#beside(-1));
    $("[data-next]", root).addEventListener("click", () => this.#beside(1));
    for (const type of ["change", "pointerup", "keyup"]) this.card.addEventListener(type, () => this.#address());
    this.keys = (event) => this.#key(event);
    document.addEventListener("keydown", this.keys);
    const query = new URLSearchParams(location.search);
    this.open(Number(query.get("episode")) || 0, Number(query.get("frame")) || 0);
  }

  async open(index, frame) {
    const turn = ++this.#asked, note = $("[data-fault]", this.root);
    note.hidden = true;
    this.player.pause();
    this.list.reveal(index);
    $("[data-length]", this.root).textContent = `reading episode ${index}…`;
    const { told, fault } = await asked(`${this.data.api}/episodes/${index}?max_points=${POINTS}`);
    if (turn !== this.#asked) return;
    note.hidden = !fault;
    if (fault) {
      note.textContent = fault;
      $("[data-length]", this.root).textContent = "";
      return;
    }
    this.series = told;
    $("[data-number]", this.root).textContent = told.index;
    $("[data-task]", this.root).textContent = told.task;
    $("[data-length]", this.root).textContent = `${told.length} frames, ${(told.length / told.fps).toFixed(1)}\u00a0s`;
    this.scrub.max = told.length - 1;
    this.player.open(told, frame);
    this.plots.show(told);
    this.#address();
  }

  #at(frame) {
    this.scrub.value = frame;
    const { fps = this.data.hz, length = 0 } = this.series ?? {};
    this.scrub.setAttribute("aria-valuetext", `frame ${frame}, ${(frame / fps).toFixed(2)} s`);
    $("[data-frame]", this.root).textContent = `${(frame / fps).toFixed(2)} / ${(Math.max(length - 1, 0) / fps).toFixed(2)}\u00a0s · ${frame}`;
    this.plots.at(frame);
  }

  #state(playing) {
    const button = $("[data-play]", this.root);
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    $("use", button).setAttribute("href", playing ? "#pause" : "#play");
    if (!playing) this.#address();
  }

  #beside(step) {
    const index = this.list.beside(step);
    if (index !== null) this.open(index, 0);
  }

  // Not while something is typed or chosen elsewhere, and not over the browser's own keys.
  #key(event) {
    if (!this.root.isConnected) { document.removeEventListener("keydown", this.keys); return; }
    const at = event.target;
    if (event.altKey || event.ctrlKey || event.metaKey || at.closest("select, textarea, dialog, .tw, pre") || (at.matches("input") && at !== this.scrub)) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) this.player.step(step * (event.shiftKey ? 10 : 1));
    else if (event.key === " " && this.card.contains(at) && !at.matches("button")) this.player.toggle();
    else return;
    event.preventDefault();
    this.#address();
  }

  #address() {
    if (!this.series || this.player.playing) return;
    const url = new URL(this.data.page, location.href);
    url.searchParams.set("episode", this.series.index);
    if (this.player.frame) url.searchParams.set("frame", this.player.frame);
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }
}

// The part may come later: a version that has just become ready is swapped in.
function mount() {
  const root = $("[data-episodes]:not([data-mounted])");
  if (!root) return;
  root.dataset.mounted = "";
  new Browser(root);
}

document.addEventListener("htmx:load", mount);
mount();
