// The look of every chart: thin lines, faint horizontal grid, labels at the line's end. Plotly comes as a plain script.
/* global Plotly */

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function theme() {
  return {
    ink: css("--ink"), ink2: css("--ink-2"), ink3: css("--ink-3"), grid: css("--grid"), line: css("--line-2"),
    surface: css("--surface"), failed: css("--failed"), limit: css("--cancelling"), font: css("--sans"),
    run: (i) => css(`--run-${i}`), service: (i) => css(`--svc-${i}`),
  };
}

const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
export const alpha = (hex, a) => `rgba(${channels(hex).join(",")},${a})`;

const luminance = (rgb) => rgb.map((v) => { const x = v / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; })
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);

// Run colours are 3:1 on the card, enough for a line; text in them is pulled towards ink until it is 4.5:1.
export function readable(hex, t) {
  const background = luminance(channels(t.surface)), ink = channels(t.ink);
  let color = channels(hex);
  for (let k = 0; k < 12; k++) {
    const own = luminance(color);
    if ((Math.max(own, background) + 0.05) / (Math.min(own, background) + 0.05) >= 4.5) break;
    color = color.map((v, i) => Math.round(v + (ink[i] - v) * 0.12));
  }
  return `rgb(${color.join(",")})`;
}

// Names are people's own words: Plotly would read tags in them.
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

// `revision` keeps zoom and hidden traces over redraws; an axis that has one of its own forgets its zoom with that.
export function layout(t, { revision, log = false, right = 104, unit = "", y = {}, x = {}, notes = [], bars = false }) {
  const axis = { gridcolor: t.grid, zeroline: false, linecolor: t.line, tickcolor: t.line, tickfont: { color: t.ink3, size: 11 } };
  const end = unit ? [{ xref: "paper", x: 1, xanchor: "left", xshift: 22, yref: "paper", y: 0, yanchor: "top", yshift: -6, showarrow: false, text: unit, font: { size: 11, color: t.ink3 } }] : [];
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: t.surface, font: { family: t.font, size: 11, color: t.ink2 },
    margin: { l: 46, r: right, t: 8, b: 28 }, showlegend: false, bargap: 0.28, hovermode: bars ? "closest" : "x unified",
    hoverlabel: { bgcolor: t.surface, bordercolor: t.line, font: { family: t.font, size: 12, color: t.ink } },
    uirevision: revision,
    xaxis: { ...axis, showgrid: false, showline: true, ticks: "outside", ticklen: 4, nticks: innerWidth <= 760 ? 5 : 7, ...spike(t), ...x },
    yaxis: { ...axis, nticks: 5, rangemode: log ? "normal" : "tozero", type: log ? "log" : "linear", ...y },
    annotations: [...notes, ...end],
  };
}

// One thin line where the pointer is.
const spike = (t) => ({ spikecolor: t.ink3, spikethickness: 1, spikedash: "solid", spikemode: "across" });

// Labels beside the last point; neighbours are pushed apart so that they never touch. `items`: [{y, text, color}].
// `range`: the axis', where it is fixed.
export function endLabels(items, t, height, { log, range }) {
  if (!items.length) return [];
  const at = (v) => (log ? Math.log10(v) : v);
  const low = range?.[0] ?? Math.min(log ? Infinity : 0, ...items.map((d) => at(d.y))), high = range?.[1] ?? Math.max(...items.map((d) => at(d.y)));
  const gap = (15 * Math.max(high - low, 1e-9)) / Math.max(height - 60, 40);
  const placed = items.map((d) => ({ ...d, at: at(d.y) })).sort((a, b) => a.at - b.at);
  for (let k = 1; k < placed.length; k++) placed[k].at = Math.max(placed[k].at, placed[k - 1].at + gap);
  return placed.map((d) => ({ xref: "paper", x: 1, xanchor: "left", xshift: 6, yref: "y", y: d.at, yanchor: "middle", showarrow: false, text: d.text, font: { color: readable(d.color, t), size: 11, weight: 600 } }));
}

// A finger that moves over a chart scrolls the page; it zooms only where the chart is all there is, over the whole screen.
export const dragmode = (element) => (matchMedia("(hover: none)").matches && !element.closest("dialog") ? false : "zoom");

const BUDGET_MS = 16; // of drawing at once, beside the chart that goes over it: what is left waits for the next frame, so that the page answers

// Draws charts that are on screen, at most once a second each, never while the page is hidden.
export class Board {
  #figures = new Map(); // element -> () => {data, layout}
  #dirty = new Set();
  #onScreen = new Set();
  #drawn = new WeakSet();
  #frame = 0;
  #nearby = new IntersectionObserver((entries) => this.#seen(entries, this.#near), { rootMargin: "300px" });
  #exactly = new IntersectionObserver((entries) => this.#seen(entries, this.#onScreen));
  #near = new Set(); // not on screen yet, but soon: drawn once, and again when they are

  constructor() {
    addEventListener("joynexus:theme", () => this.redraw());
    document.addEventListener("visibilitychange", () => this.#draw());
    setInterval(() => this.#draw(), 1000);
  }

  add(element, figure) {
    this.#figures.set(element, figure);
    this.#dirty.add(element);
    this.#nearby.observe(element);
    this.#exactly.observe(element);
  }

  // `elements`: those that have changed, all if none are told.
  redraw(elements = this.#figures.keys()) {
    for (const element of elements) this.#dirty.add(element);
  }

  now(elements) {
    this.redraw(elements);
    this.#draw();
  }

  #seen(entries, group) {
    for (const entry of entries) group[entry.isIntersecting ? "add" : "delete"](entry.target);
    this.#draw();
  }

  #draw() {
    if (document.hidden || this.#frame) return;
    const began = performance.now();
    let charts = 0;
    for (const element of [...this.#dirty]) {
      if (!this.#onScreen.has(element) && (!this.#near.has(element) || this.#drawn.has(element))) continue;
      if (performance.now() - began > BUDGET_MS) { this.#frame = requestAnimationFrame(() => { this.#frame = 0; this.#draw(); }); break; }
      this.#dirty.delete(element);
      this.#drawn.add(element);
      const { data, layout: look } = this.#figures.get(element)();
      Plotly.react(element, data, { ...look, dragmode: dragmode(element) }, { responsive: true, displayModeBar: false, doubleClick: "reset" });
      charts += 1;
    }
    if (charts) dispatchEvent(new CustomEvent("joynexus:drawn", { detail: { charts, ms: performance.now() - began } }));
  }
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: 3 });
}
