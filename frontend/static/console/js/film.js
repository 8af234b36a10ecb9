// One film as a tile: loaded when it comes near the screen, scrubbed by hovering or with arrow keys, played by a click.
// A film has a picture for each step, and its last picture some steps longer: `data-frames` counts both.
import { $, setText } from "./dom.js";

const UNKNOWN = 100; // steps of a film that does not say how many it has
const BROKEN = "Cannot be read now: press to try again";
const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) load(target);
}, { rootMargin: "200px" });

// Nothing of a film is asked for before this; then only what the player needs, by ranges.
export function load(video) {
  observer.unobserve(video);
  if (!video.dataset.src) return;
  video.preload = "metadata";
  video.src = video.dataset.src;
  delete video.dataset.src;
}

export function watch(root) {
  for (const video of root.querySelectorAll("video[data-src]")) observer.observe(video);
}

export const stepsOf = (figure) => Number(figure.dataset.steps) || UNKNOWN;

// Seconds of a step; 0 until the film's length is known.
const stepS = (figure) => ($("video", figure).duration || 0) / (Number(figure.dataset.frames) || UNKNOWN);

// Which step is seen, with its fraction; never more than there are.
export function stepAt(figure) {
  const length = stepS(figure);
  return length ? Math.min(stepsOf(figure), $("video", figure).currentTime / length) : 0;
}

export const isOver = (figure) => $("video", figure).ended || stepAt(figure) >= stepsOf(figure);

// Shows a step: into the middle of its picture, so that no rounding shows its neighbour.
export function seek(figure, step) {
  const video = $("video", figure), to = Math.max(0, Math.min(stepsOf(figure), step));
  const go = () => { video.currentTime = to ? Math.min((to + 0.5) * stepS(figure), video.duration) : 0; };
  load(video);
  if (video.readyState >= 1) go();
  else video.addEventListener("loadedmetadata", go, { once: true });
  tell(figure, to);
}

// The step under the film: what is seen now while it moves, how long the episode was while it rests at its start.
// A film that could not be read says so instead.
export function tell(figure, step) {
  const { steps, limit } = figure.dataset, now = Math.floor(step + 0.01), scrub = $("[data-scrub]", figure);
  if (scrub) {
    scrub.value = now;
    scrub.setAttribute("aria-valuetext", `step ${now} of ${stepsOf(figure)}`);
  }
  if ("broken" in figure.dataset) setText("[data-step-now]", BROKEN, figure);
  else if (steps) setText("[data-step-now]", `${now > 0 ? now : steps}${limit || now > 0 ? ` / ${limit || steps}` : ""}`, figure);
}

function mark(figure, broken) {
  if (!figure || broken === "broken" in figure.dataset) return;
  figure.toggleAttribute("data-broken", broken);
  tell(figure, 0);
}

export function toggle(figure) {
  const video = $("video", figure);
  load(video);
  if ("broken" in figure.dataset) video.load();
  else if (!video.paused) { video.pause(); return; }
  if (isOver(figure)) video.currentTime = 0;
  video.play().catch(() => {}); // left before it began, or not playable here: the browser shows which
}

// `host` holds figures, now or later.
export function enliven(host) {
  const figureOf = (event) => event.target.closest?.("figure.video");
  host.addEventListener("click", (event) => { if (event.target.closest("[data-play]")) toggle(figureOf(event)); });
  host.addEventListener("input", (event) => {
    if (!event.target.matches("[data-scrub]")) return;
    $("video", figureOf(event)).pause();
    seek(figureOf(event), Number(event.target.value));
  });
  host.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], figure = figureOf(event);
    if (!by || !figure || !event.target.matches("[data-play]")) return;
    event.preventDefault();
    $("video", figure).pause();
    seek(figure, Math.floor(stepAt(figure)) + by);
  });
  host.addEventListener("pointermove", (event) => {
    const frame = event.target.closest("[data-play]");
    if (!frame || event.pointerType !== "mouse" || !$("video", frame).paused) return;
    const figure = figureOf(event), box = frame.getBoundingClientRect();
    seek(figure, Math.round(((event.clientX - box.left) / box.width) * stepsOf(figure)));
  });
  host.addEventListener("timeupdate", (event) => {
    const figure = figureOf(event);
    if (figure && !event.target.paused) tell(figure, stepAt(figure));
  }, true); // media events do not bubble
  host.addEventListener("error", (event) => mark(figureOf(event), true), true);
  host.addEventListener("loadedmetadata", (event) => mark(figureOf(event), false), true);
  host.addEventListener("ended", (event) => { const figure = figureOf(event); if (figure) tell(figure, stepsOf(figure)); }, true);
}
