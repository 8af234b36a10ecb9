// Plays an episode: every camera's video at one frame. The first video is the clock; without any, time itself is.
import { $ } from "./dom.js";

const DRIFT_FRAMES = 1.5; // further apart than that, a video is put back

export class Player {
  #frame = 0;
  #playing = false;
  #asked = 0;
  #started = { frame: 0, at: 0 };
  videos = [];

  /** @param {(frame: number) => void} onFrame  @param {(isPlaying: boolean) => void} onState */
  constructor(place, data, { onFrame, onState }) {
    Object.assign(this, { place, data, onFrame, onState, length: 0, fps: data.hz });
  }

  get frame() { return this.#frame; }
  get playing() { return this.#playing; }

  /** @param {{index: number, length: number, fps: number}} episode */
  open(episode, frame) {
    this.pause();
    Object.assign(this, { length: episode.length, fps: episode.fps });
    this.place.replaceChildren(...this.data.cameras.map((camera) => this.#view(episode.index, camera)));
    this.seek(frame);
  }

  #view(index, camera) {
    const name = camera.key.replace(/^observation\.images\./, "") || camera.key;
    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, preload: "auto", disablePictureInPicture: true });
    video.setAttribute("aria-label", `Camera ${name}`);
    video.dataset.frames = `${this.data.api}/episodes/${index}/frames/${encodeURIComponent(camera.key)}`;
    video.addEventListener("error", () => this.#stills(video, name));
    video.addEventListener("loadeddata", () => { caption.textContent = name; }, { once: true });
    video.addEventListener("loadedmetadata", () => this.#place(video));
    video.addEventListener("ended", () => this.#end());
    video.src = `${this.data.api}/episodes/${index}/videos/${encodeURIComponent(camera.key)}`;
    caption.textContent = `${name}, being read…`; // the first to look at an episode has its video made
    figure.append(video, caption);
    return figure;
  }

  // No video can be made of this camera: single frames are shown instead, while nothing plays.
  #stills(video, name) {
    const image = document.createElement("img");
    image.alt = `Camera ${name}`;
    image.dataset.frames = video.dataset.frames;
    video.nextElementSibling.textContent = `${name}, single frames`;
    video.replaceWith(image);
    this.#picture(image);
  }

  #picture(image) {
    image.src = `${image.dataset.frames}?index=${this.#frame}`;
  }

  get #videos() { return [...this.place.querySelectorAll("video")]; }
  get #clock() { return this.#videos.find((video) => video.readyState > 0 && !video.error) ?? null; }

  // The middle of the frame's time: its beginning may round to the frame before.
  #place(video) {
    video.currentTime = (this.#frame + 0.5) / this.fps;
  }

  seek(frame) {
    const to = Math.min(Math.max(Math.round(frame), 0), Math.max(this.length - 1, 0));
    this.#tell(to);
    this.#started = { frame: to, at: performance.now() };
    for (const video of this.#videos) if (video.readyState > 0) this.#place(video);
    if (!this.#playing) this.#stillsSoon();
  }

  #stillsSoon() {
    const asked = ++this.#asked;
    setTimeout(() => { if (asked === this.#asked) for (const image of this.place.querySelectorAll("img")) this.#picture(image); }, 150);
  }

  step(frames) {
    this.pause();
    this.seek(this.#frame + frames);
  }

  toggle() {
    if (this.#playing) this.pause();
    else this.play();
  }

  play() {
    if (this.length < 2) return;
    if (this.#frame >= this.length - 1) this.seek(0);
    this.#playing = true;
    this.#started = { frame: this.#frame, at: performance.now() };
    for (const video of this.#videos) video.play().catch(() => {});
    this.onState(true);
    requestAnimationFrame(() => this.#tick());
  }

  pause() {
    if (!this.#playing) return;
    this.#playing = false;
    for (const video of this.#videos) video.pause();
    this.onState(false);
    this.seek(this.#frame);
  }

  #end() {
    if (!this.#playing) return;
    this.#tell(this.length - 1);
    this.pause();
  }

  #tick() {
    if (!this.#playing) return;
    const clock = this.#clock;
    const frame = clock ? Math.floor(clock.currentTime * this.fps + 1e-3) : this.#started.frame + Math.floor(((performance.now() - this.#started.at) / 1000) * this.fps);
    if (frame >= this.length - 1) { this.#end(); return; }
    this.#tell(Math.max(frame, 0));
    for (const video of this.#videos) {
      if (video !== clock && video.readyState > 0 && Math.abs(video.currentTime - clock.currentTime) * this.fps > DRIFT_FRAMES) video.currentTime = clock.currentTime;
    }
    requestAnimationFrame(() => this.#tick());
  }

  #tell(frame) {
    this.#frame = frame;
    this.onFrame(frame);
  }
}
