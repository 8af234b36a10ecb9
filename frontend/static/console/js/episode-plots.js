// Curves of one episode with a line at the frame shown. A click or drag in them seeks; so they have no zoom.
/* global Plotly */
import { $, $$ } from "./dom.js";
import { endLabels, layout, number, theme } from "./plots.js";

const LANE_PX = 62; // height of one dimension where each has a lane
const TOGETHER_MAX = 10; // more curves than colours are shown one by one
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

export class EpisodePlots {
  #group = "action";
  #form = null; // chosen by hand; else by the number of dimensions
  #frame = 0;
  #series = null;

  /** @param {(frame: number) => void} onSeek */
  constructor(root, onSeek) {
    Object.assign(this, { root, onSeek, place: $("[data-curves]", root), line: $("[data-head]", root), readout: $("[data-readout]", root) });
    for (const button of $$("[data-group]", root)) button.addEventListener("click", () => { this.#group = button.dataset.group; this.draw(); });
    for (const button of $$("[data-form]", root)) button.addEventListener("click", () => { this.#form = button.dataset.form; this.draw(); });
    this.#listen($("[data-track]", root));
    addEventListener("joynexus:theme", () => this.draw());
    new ResizeObserver(() => this.#move()).observe(this.place);
  }

  /** @param series what the API says of an episode */
  show(series) {
    this.#series = series;
    this.draw();
  }

  at(frame) {
    this.#frame = frame;
    this.#move();
    this.#read();
  }

  get #curves() { return this.#series?.[this.#group] ?? []; }
  get #apart() { return (this.#form ?? (this.#curves.length > TOGETHER_MAX ? "apart" : "together")) === "apart"; }

  draw() {
    if (!this.#series || !window.Plotly) return;
    for (const button of $$("[data-group]", this.root)) button.setAttribute("aria-pressed", button.dataset.group === this.#group);
    for (const button of $$("[data-form]", this.root)) button.setAttribute("aria-pressed", (button.dataset.form === "apart") === this.#apart);
    const t = theme(), curves = this.#curves.map((curve, place) => ({ ...curve, ...this.#points(curve), slot: (place % 10) + 1 }));
    const figure = this.#apart ? this.#lanes(t, curves) : this.#overlay(t, curves);
    this.place.classList.toggle("lanes", this.#apart);
    this.#scrolls();
    this.#items(curves, t);
    Plotly.react(this.place, figure.data, figure.layout, { responsive: true, displayModeBar: false }).then(() => this.#move());
    this.place.setAttribute("aria-label", `${this.#group === "action" ? "Action" : "State"} over the episode: ${curves.map((curve) => curve.name).join(", ")}`);
  }

  // What scrolls can be reached by keyboard.
  #scrolls() {
    const box = $("[data-lanes]", this.root);
    if (!this.#apart) for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    else for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "One curve per dimension" })) box.setAttribute(name, value);
  }

  // A bucket of several frames has a least and a greatest value: both are drawn, so no spike is lost.
  #points(curve) {
    const x = [], y = [], { frames, fps } = this.#series;
    for (const [place, frame] of frames.entries()) {
      x.push(frame / fps);
      y.push(curve.min[place]);
      if (curve.max[place] !== curve.min[place]) { x.push(frame / fps); y.push(curve.max[place]); }
    }
    return { x, y };
  }

  #trace(t, curve, more = {}) {
    return { type: "scatter", mode: "lines", x: curve.x, y: curve.y, name: escaped(curve.name), hoverinfo: "none", line: { color: t.run(curve.slot), width: 1.4 }, ...more };
  }

  #xaxis() {
    const last = Math.max(this.#series.length - 1, 1) / this.#series.fps;
    return { range: [0, last], fixedrange: true, ticksuffix: " s" };
  }

  #overlay(t, curves) {
    const data = curves.map((curve) => this.#trace(t, curve));
    const values = curves.flatMap((curve) => curve.y).filter((value) => value !== null);
    const low = values.reduce((least, value) => Math.min(least, value), Infinity), high = values.reduce((most, value) => Math.max(most, value), -Infinity);
    const room = (high - low || 1) * 0.05, range = [low - room, high + room];
    const labels = curves.length > TOGETHER_MAX ? [] : endLabels(curves.map((curve) => ({ y: curve.y.findLast((value) => value !== null) ?? 0, text: escaped(curve.name), color: t.run(curve.slot) })), t, 264, { log: false, range });
    const look = layout(t, { revision: "episode", right: labels.length ? 104 : 16, y: { rangemode: "normal", range, fixedrange: true, zeroline: true, zerolinecolor: t.grid }, x: this.#xaxis(), notes: labels });
    return { data, layout: { ...look, dragmode: false, hovermode: false, height: 264 } };
  }

  #lanes(t, curves) {
    const count = curves.length, height = count * LANE_PX + 40;
    const look = layout(t, { revision: "lanes", right: 16, x: { ...this.#xaxis(), anchor: `y${count > 1 ? count : ""}` } });
    const { yaxis } = look, notes = [], lanes = {};
    for (const [place, curve] of curves.entries()) {
      const top = 1 - place / count, low = 1 - (place + 1) / count;
      lanes[place ? `yaxis${place + 1}` : "yaxis"] = { ...yaxis, domain: [low + 0.1 / count, top - 0.26 / count], nticks: 2, rangemode: "normal", fixedrange: true };
      notes.push({ xref: "paper", x: 0, xanchor: "left", yref: "paper", y: top - 0.02 / count, yanchor: "top", showarrow: false, text: escaped(curve.name), font: { size: 11, color: t.ink2, weight: 500 } });
    }
    const data = curves.map((curve, place) => this.#trace(t, curve, { yaxis: `y${place ? place + 1 : ""}` }));
    return { data, layout: { ...look, ...lanes, annotations: notes, dragmode: false, hovermode: false, height } };
  }

  #items(curves, t) {
    this.readout.replaceChildren(...curves.map((curve) => {
      const item = document.createElement("li"), dot = document.createElement("span"), name = document.createElement("span"), value = document.createElement("b");
      dot.className = `dot r${curve.slot}`;
      name.textContent = curve.name;
      item.append(dot, name, value);
      return item;
    }));
    this.#read();
  }

  #read() {
    if (!this.#series) return;
    const { frames } = this.#series;
    let bucket = Math.min(this.#frame, frames.length - 1);
    if (frames[bucket] !== this.#frame) bucket = frames.findLastIndex((first) => first <= this.#frame);
    for (const [place, item] of [...this.readout.children].entries()) {
      const { min, max } = this.#curves[place], text = min[bucket] === max[bucket] ? number(min[bucket]) : `${number(min[bucket])} to ${number(max[bucket])}`;
      const shown = text.replaceAll("-", "−");
      if (item.lastChild.textContent !== shown) item.lastChild.textContent = shown;
    }
  }

  get #axis() { return this.place._fullLayout?.xaxis; }

  #move() {
    const axis = this.#axis;
    this.line.hidden = !axis || !this.#series;
    if (this.line.hidden) return;
    this.line.style.transform = `translateX(${this.place.offsetLeft + axis._offset + axis.l2p(this.#frame / this.#series.fps)}px)`;
  }

  #listen(track) {
    const seek = (event) => {
      const axis = this.#axis;
      if (!axis || !this.#series) return;
      const x = event.clientX - this.place.getBoundingClientRect().left - axis._offset;
      this.onSeek(Math.round(axis.p2l(Math.min(Math.max(x, 0), axis._length)) * this.#series.fps));
    };
    track.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      track.setPointerCapture(event.pointerId);
      seek(event);
    });
    track.addEventListener("pointermove", (event) => { if (track.hasPointerCapture(event.pointerId)) seek(event); });
  }
}
