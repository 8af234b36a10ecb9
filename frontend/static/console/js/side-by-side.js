// Two to four films in a dialog, played in step: one time for all, the longest film is the measure.
import { $, $$, setText } from "./dom.js";
import { isOver, load, seek, stepAt, stepsOf, tell } from "./film.js";

const DRIFT_STEPS = 2; // films further apart than this are brought together again
const CHECK_MS = 200;

export class SideBySide {
  #timer = 0;

  constructor(dialog) {
    this.dialog = dialog;
    this.scrub = $("[data-all-scrub]", dialog);
    this.button = $("[data-all-play]", dialog);
    $("[data-all-rate]", dialog).addEventListener("change", (event) => { for (const video of this.videos) video.playbackRate = Number(event.target.value); });
    this.button.addEventListener("click", () => this.#toggle());
    this.scrub.addEventListener("input", () => { this.#pause(); this.#seek(Number(this.scrub.value)); });
    dialog.addEventListener("keydown", (event) => this.#key(event));
    dialog.addEventListener("close", () => { this.#pause(); $("[data-pair]", dialog).replaceChildren(); });
  }

  get videos() { return $$("video", this.dialog); }
  get figures() { return $$("figure", this.dialog); }
  get steps() { return Math.max(1, ...this.figures.map(stepsOf)); }

  // Copies of the tiles: those on the page stay as they are.
  show(figures) {
    const copies = figures.map((figure) => {
      const copy = figure.cloneNode(true), frame = $(".frame", copy), still = document.createElement("div");
      for (const part of $$("[data-scrub], .cap3", copy)) part.remove();
      still.className = "frame";
      still.append(...frame.childNodes);
      frame.replaceWith(still);
      return copy;
    });
    const shelf = $("[data-pair]", this.dialog);
    shelf.dataset.count = copies.length;
    shelf.replaceChildren(...copies);
    for (const [at, video] of this.videos.entries()) {
      const own = $("video", figures[at]);
      if (!video.dataset.src) video.src = own.src;
      else load(video);
      video.preload = "auto";
      video.playbackRate = Number($("[data-all-rate]", this.dialog).value);
    }
    this.scrub.max = this.steps;
    this.#seek(0);
    this.dialog.showModal();
    this.button.focus();
  }

  #key(event) {
    if (event.target.matches("select, input") || !["ArrowLeft", "ArrowRight", " "].includes(event.key)) return;
    if (event.key === " " && event.target.matches("button")) return; // the button does what it says
    event.preventDefault();
    if (event.key === " ") { this.#toggle(); return; }
    this.#pause();
    this.#seek(Number(this.scrub.value) + (event.key === "ArrowRight" ? 1 : -1));
  }

  #toggle() {
    if (this.#timer) { this.#pause(); return; }
    if (Number(this.scrub.value) >= this.steps) this.#seek(0);
    for (const figure of this.figures) if (!isOver(figure)) $("video", figure).play().catch(() => {});
    this.#timer = setInterval(() => this.#together(), CHECK_MS);
    setText("span", "Pause", this.button);
  }

  #pause() {
    if (this.#timer) this.#seek(this.#seen()); // all stop on the very same step
    clearInterval(this.#timer);
    this.#timer = 0;
    for (const video of this.videos) video.pause();
    setText("span", "Play", this.button);
  }

  #seen() { return Math.floor(stepAt(this.#lead())); }

  // The longest film is the measure; what fell behind it or ran ahead is brought to its step.
  #together() {
    const lead = this.#lead(), step = stepAt(lead);
    for (const figure of this.figures) {
      if (figure !== lead && !isOver(figure) && Math.abs(stepAt(figure) - step) > DRIFT_STEPS) seek(figure, Math.floor(step));
      tell(figure, stepAt(figure));
    }
    this.#tell(Math.floor(step));
    if (isOver(lead)) this.#pause();
  }

  #lead() {
    return this.figures.reduce((best, figure) => (stepsOf(figure) > stepsOf(best) ? figure : best));
  }

  // A film that is shorter rests on its last step.
  #seek(step) {
    const at = Math.max(0, Math.min(this.steps, step));
    for (const figure of this.figures) seek(figure, at);
    this.#tell(at);
  }

  #tell(step) {
    this.scrub.value = step;
    setText("[data-all-step]", `${step} / ${this.steps}`, this.dialog);
  }
}
