// The curves of one job: history from the server, new rows from its stream, cards that are drawn while on screen.
import { describe } from "./chart-card.js";
import { csvOf, fullScreen, showData } from "./chart-dialogs.js";
import { find, OtherCharts } from "./chart-groups.js";
import { remember, settings } from "./chart-settings.js";
import { Zoom } from "./chart-zoom.js";
import { $, $$ } from "./dom.js";
import { figure } from "./job-charts.js";
import { Board, theme } from "./plots.js";
import { SeriesStore } from "./series.js";

const POINTS = 500; // buckets per curve that the server is asked for: as many as series.js keeps

export class Charts {
  #page;
  #root;
  #store = new SeriesStore(POINTS);
  #board = new Board();
  #view;
  #cards = new Map(); // plot -> {card, chart, zoom}
  #others;
  #waiting = []; // cards are drawn once their curves are known: null from then on
  #seq = 0; // rows up to here are in the curves
  #late = null; // rows that came while the server was asked; its answer may be older than they are

  // `page`: what `charts_context` tells the script; `root`: the section of console/parts/charts.html.
  constructor(page, root) {
    this.#page = page;
    this.#root = root;
    this.#view = settings(page.kind, page.axes.map((axis) => axis.value));
    for (const element of $$("[data-chart]", root)) this.#add(element, page.charts.find((chart) => chart.id === element.dataset.chart));
    this.#others = new OtherCharts(root, page.charts, (element, chart) => this.#add(element, chart));
    this.#controls();
  }

  // Reads every curve anew, decimated. Resolves to the sequence number the answer reaches; rejects if there is none.
  async history() {
    this.#late ??= [];
    try {
      const answer = await fetch(`/api/v1/jobs/${this.#page.id}/metrics?max_points=${POINTS}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`metrics: ${answer.status}`);
      const loaded = await answer.json();
      this.#store.load(loaded);
      this.#seq = loaded.seq;
      for (const row of this.#late) if (row.seq > loaded.seq) this.#store.add(row);
      this.#begin(loaded.series.map((curve) => curve.time[0]));
      this.#others.show(this.#store.names());
      for (const { card, chart } of this.#cards.values()) this.#describe(card, chart);
      this.#waiting?.forEach((begin) => begin());
      this.#waiting = null;
      this.#board.now();
      return loaded.seq;
    } finally { this.#late = null; }
  }

  // Rows of the job's stream, in its order; what is known already is not told twice.
  add(rows) {
    this.#late?.push(...rows);
    const fresh = rows.filter((row) => row.seq > this.#seq), names = new Set(fresh.map((row) => row.series));
    if (!fresh.length) return;
    for (const row of fresh) this.#store.add(row);
    for (const { zoom } of this.#cards.values()) zoom.add(fresh);
    this.#begin(fresh.map((row) => row.time));
    this.#others.show(names);
    this.#board.redraw(this.#showing(names));
  }

  // Everything is drawn again, at most once a second.
  redraw() { this.#board.redraw(); }

  get longest() { return this.#store.longest; }

  // Relative time counts from when the job started; of one that nobody saw start, from its first point.
  #begin(times) { if (this.#page.began === null && times.length) this.#page.began = Math.min(...times); }

  #showing(names) {
    if (names.has(this.#view.x)) return undefined;
    return [...this.#cards].filter(([, { chart }]) => chart.curves.some((c) => [c.series, c.episodes, ...c.more].some((name) => names.has(name)))).map(([element]) => element);
  }

  #add(element, chart) {
    const card = element.closest("[data-card]"), { store, view, page } = { store: this.#store, view: this.#view, page: this.#page };
    const zoom = new Zoom({ element, chart, store, view, page, changed: () => this.#board.now([element]) });
    this.#cards.set(element, { card, chart, zoom });
    const draw = () => {
      const drawn = figure(chart, { element, store, zoom: zoom.fine, view, page, theme });
      this.#describe(card, chart, { ...drawn, zoomed: Boolean(zoom.fine) });
      queueMicrotask(() => zoom.listen());
      return drawn;
    };
    if (this.#waiting) this.#waiting.push(() => this.#board.add(element, draw));
    else this.#board.add(element, draw);
    $("[data-csv]", card).href = csvOf(page.id, chart);
    card.addEventListener("click", (event) => this.#clicked(event.target.closest("button"), card, chart, element, zoom));
  }

  #clicked(button, card, chart, element, zoom) {
    if (button?.matches("[data-full]")) fullScreen($("[data-full-dialog]", this.#root), card, () => { this.#board.now([element]); zoom.look(); });
    if (button?.matches("[data-table]")) showData($("[data-table-dialog]", this.#root), chart, this.#store, this.#page);
    if (!button?.dataset.key) return;
    const { hidden } = this.#view, { key } = button.dataset;
    if (!hidden.delete(key)) hidden.add(key);
    button.setAttribute("aria-pressed", String(!hidden.has(key)));
    this.#changed([element]);
  }

  #describe(card, chart, told = {}) { describe(card, chart, this.#store, { view: this.#view, unit: this.#page.unit, ...told }); }

  #changed(elements) {
    remember(this.#page.kind, this.#view);
    this.#board.now(elements);
  }

  #controls() {
    const view = this.#view, control = (name, type, show, act) => {
      const input = $(`[data-${name}]`, this.#root);
      show(input);
      input.addEventListener(type, () => { act(input); this.#changed(); });
    };
    const weight = (input) => { input.nextElementSibling.value = view.weight.toFixed(2); };
    control("smooth", "input", (input) => { input.value = view.weight; weight(input); }, (input) => { view.weight = Number(input.value); weight(input); });
    control("log", "change", (input) => { input.checked = view.log; }, (input) => { view.log = input.checked; });
    control("x", "change", (input) => { input.value = view.x; }, (input) => { view.x = input.value; for (const { zoom } of this.#cards.values()) zoom.fine = null; });
    $("[data-find]", this.#root).addEventListener("input", () => find(this.#root));
    for (const dialog of $$("dialog", this.#root)) $("[data-shut]", dialog).addEventListener("click", () => dialog.close());
  }
}
