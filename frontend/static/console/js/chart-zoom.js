// A zoomed chart: the range that is on screen, read from the server in narrower buckets. The whole curve stays as it is,
// and with it the smoothed line.
import { places, stepsWithin, unitOf } from "./chart-places.js";
import { curvesOf, namesOf } from "./job-charts.js";
import { SeriesStore } from "./series.js";

const WAIT_MS = 250; // after the last movement of the mouse
const POINTS = 1000; // buckets per curve within the range

export class Zoom {
  #timer = 0;
  #asked = 0;
  fine = null; // {store, from, to, open}: what `figure` draws within the range

  constructor({ element, chart, store, view, page, changed }) {
    Object.assign(this, { element, chart, store, view, page, changed });
  }

  // Plotly has the listener only once it has drawn.
  listen() {
    if (this.listening || !this.element.on) return;
    this.listening = true;
    this.element.on("plotly_relayout", () => this.look());
  }

  look() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#read().catch(() => { /* the whole curve is drawn as before */ }), WAIT_MS);
  }

  get active() { return this.element.layout?.xaxis?.autorange === false; }

  // New rows within a range that reached the newest point belong to it.
  add(rows) {
    if (!this.fine?.open) return;
    for (const row of rows) if (this.fine.names.has(row.series)) this.fine.store.add(row);
  }

  async #read() {
    const asked = ++this.#asked, range = this.active ? this.#steps() : null;
    if (!range) { if (this.fine) { this.fine = null; this.changed(); } return; }
    const names = namesOf(this.chart);
    const query = new URLSearchParams({ series: names.join(","), from: range.from, to: range.to, max_points: POINTS });
    const answer = await fetch(`/api/v1/jobs/${this.page.id}/metrics?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || asked !== this.#asked) return;
    const store = new SeriesStore(POINTS);
    store.load(await answer.json());
    this.fine = { store, ...range, names: new Set(names) };
    this.changed();
  }

  // The steps on screen, whole buckets of the curves; null if all of them are points already.
  #steps() {
    const { chart, store, view, page } = this, range = this.element.layout.xaxis.range;
    const told = chart.curves.flatMap((curve) => curvesOf(store, curve)), wide = told.filter((own) => own.width > 1 && own.x.length);
    const unit = unitOf(view.x, page, Math.max(0, ...told.map((own) => (own.time.at(-1) ?? 0) - page.began)));
    const found = wide.map((own) => stepsWithin(places(store, own, view.x, { began: page.began, unit }), own, range)).filter(Boolean);
    if (!found.length) return null;
    const from = Math.min(...found.map(([first]) => first)), to = Math.max(...found.map(([, last]) => last));
    return { from, to, open: wide.some((own) => own.x.at(-1) <= to) };
  }
}
