// The curves of one job: history from the server, new rows from its stream, cards that are drawn while on screen.
import { $, $$, setText } from "./dom.js";
import { countText, figure } from "./job-charts.js";
import { Board, theme } from "./plots.js";
import { SeriesStore } from "./series.js";

const POINTS = 1500; // buckets per curve that the server is asked for
const REFETCH_AT = 6000; // drawn points of the longest curve; beyond it the server decimates again

export class Charts {
  #page;
  #root;
  #store = new SeriesStore();
  #board = new Board();
  #view = { weight: 0.6, log: false, x: "" };
  #late = null; // rows that came while the server was asked; its answer may be older than they are

  // `page`: what `charts_context` tells the script; `root`: the section of console/parts/charts.html.
  constructor(page, root) {
    this.#page = page;
    this.#root = root;
    for (const element of $$("[data-chart]", root)) this.#plot(element);
    this.#listen();
  }

  // Reads every curve anew, decimated. Resolves to the sequence number the answer reaches; rejects if there is none.
  async history() {
    this.#late ??= [];
    try {
      const answer = await fetch(`/api/v1/jobs/${this.#page.id}/metrics?max_points=${POINTS}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`metrics: ${answer.status}`);
      const loaded = await answer.json();
      this.#store.load(loaded);
      for (const row of this.#late) this.#store.add(row);
      this.redraw();
      return loaded.seq;
    } finally { this.#late = null; }
  }

  // Rows of the job's stream, in its order; what is known already is not told twice.
  add(rows) {
    for (const row of rows) this.#store.add(row);
    this.#late?.push(...rows);
    this.redraw();
    if (this.longest > REFETCH_AT && !this.#late) this.history().catch(() => { /* the next rows ask again */ });
  }

  // Everything is drawn again, at most once a second.
  redraw() {
    this.#counts();
    this.#board.redraw();
  }

  get longest() { return this.#store.longest; }

  #plot(element) {
    const { id, unit, charts } = this.#page, chart = charts.find((c) => c.id === element.dataset.chart);
    this.#board.add(element, () => figure(chart, { element, store: this.#store, view: this.#view, id, unit, theme }));
  }

  #listen() {
    const view = this.#view, board = this.#board, on = (name, type, act) => $(`[data-${name}]`, this.#root)?.addEventListener(type, (event) => { act(event.target); board.now(); });
    on("smooth", "input", (input) => { view.weight = Number(input.value); input.nextElementSibling.value = view.weight.toFixed(2); });
    on("log", "change", (input) => { view.log = input.checked; });
    on("x", "change", (input) => { view.x = input.value; });
  }

  #counts() {
    for (const chart of this.#page.charts) {
      const text = countText(chart, this.#store);
      if (text) setText(`[data-count="${chart.id}"]`, text, this.#root);
    }
  }
}
