// One film as a tile: loaded when it comes near the screen, scrubbed by hovering or with arrow keys, played by a click.
import { $, setText } from "./dom.js";

const NEAR = { rootMargin: "200px" };
const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) load(target);
}, NEAR);

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

export const stepsOf = (figure) => Number(figure.dataset.steps) || 0;

// How far the film is, from 0 to 1.
export function share(video) {
  return video.duration ? Math.min(1, video.currentTime / video.duration) : 0;
}

export function seek(figure, part) {
  const video = $("video", figure);
  load(video);
  const to = Math.max(0, Math.min(1, part));
  if (video.duration) video.currentTime = Math.min(to * video.duration, video.duration - 0.001);
  else video.addEventListener("loadedmetadata", () => { video.currentTime = to * video.duration; }, { once: true });
  tell(figure, to);
}

// The step under the film: what is seen now while it moves, how long the episode was while it rests at its start.
export function tell(figure, part) {
  const steps = stepsOf(figure), limit = figure.dataset.limit, now = Math.round(part * steps);
  const scrub = $("[data-scrub]", figure);
  if (scrub) {
    scrub.value = steps ? now : Math.round(part * 100);
    scrub.setAttribute("aria-valuetext", `step ${now} of ${steps}`);
  }
  setText("[data-step-now]", part > 0 ? `${now} / ${limit || steps}` : `${steps}${limit ? ` / ${limit}` : ""}`, figure);
}

export function toggle(figure) {
  const video = $("video", figure);
  load(video);
  if (!video.paused) { video.pause(); return; }
  if (share(video) > 0.995) video.currentTime = 0;
  video.play().catch(() => {}); // left before it began, or not playable here: the browser shows which
}

// `host` holds figures, now or later.
export function enliven(host) {
  const figureOf = (event) => event.target.closest?.("figure.video");
  host.addEventListener("click", (event) => { if (event.target.closest("[data-play]")) toggle(figureOf(event)); });
  host.addEventListener("input", (event) => {
    if (!event.target.matches("[data-scrub]")) return;
    $("video", figureOf(event)).pause();
    seek(figureOf(event), event.target.value / event.target.max);
  });
  host.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key], figure = figureOf(event);
    if (!step || !figure || !event.target.matches("[data-play]")) return;
    event.preventDefault();
    const video = $("video", figure), steps = stepsOf(figure) || 50;
    video.pause();
    seek(figure, (Math.round(share(video) * steps) + step) / steps);
  });
  host.addEventListener("pointermove", (event) => {
    const frame = event.target.closest("[data-play]");
    if (!frame || event.pointerType !== "mouse" || !$("video", frame).paused) return;
    const box = frame.getBoundingClientRect();
    seek(figureOf(event), (event.clientX - box.left) / box.width);
  });
  host.addEventListener("timeupdate", (event) => {
    const figure = figureOf(event);
    if (figure && !event.target.paused) tell(figure, share(event.target));
  }, true); // media events do not bubble
  host.addEventListener("ended", (event) => { if (figureOf(event)) tell(figureOf(event), 1); }, true);
}
