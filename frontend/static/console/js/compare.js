// Several jobs in one chart per series: a line per job in its own colour, over steps, time or environment steps.
import { $, $$, pageData, setText } from "./dom.js";
import { line, unitOf } from "./compare-lines.js";
import { wholeSteps } from "./job-charts.js";
import { Board, endLabels, layout, theme } from "./plots.js";
import { SeriesStore } from "./series.js";

const POINTS = 400; // buckets per curve and job: ten jobs share a chart
const NAMES_PER_REQUEST = 40; // their length is limited
const REFRESH_MS = 3000;

const page = pageData("live");
const board = new Board();
const view = { weight: 0.6, log: false, x: "step" };
const stores = new Map(page.jobs.map((job) => [job.id, new SeriesStore()]));
const names = [...new Set([...page.charts.map((chart) => chart.series), ...page.axes])];
const asked = new Map(); // job -> performance.now() of its last read
const unread = new Set(page.jobs); // those of which no whole answer has come yet
let again = 0;

async function read(job) {
  asked.set(job.id, performance.now());
  const series = [];
  for (let at = 0; at < names.length; at += NAMES_PER_REQUEST) {
    const query = new URLSearchParams({ max_points: POINTS, series: names.slice(at, at + NAMES_PER_REQUEST).join(",") });
    const answer = await fetch(`/api/v1/jobs/${job.id}/metrics?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`metrics of ${job.id}: ${answer.status}`);
    const told = await answer.json();
    job.live = !["succeeded", "failed", "cancelled"].includes(told.state);
    series.push(...told.series);
  }
  stores.get(job.id).load({ series });
  unread.delete(job);
  counts();
  board.redraw();
}

// Jobs that run are read again when something has happened, others until they could be; what is drawn is the whole
// curve each time.
async function refresh() {
  const due = page.jobs.filter((job) => (job.live || unread.has(job)) && performance.now() - (asked.get(job.id) ?? -Infinity) >= REFRESH_MS);
  await Promise.allSettled(due.map(read));
  clearTimeout(again);
  const skipped = page.jobs.some((job) => job.live && !due.includes(job)); // its last change may be the one just told
  if (unread.size || skipped) again = setTimeout(refresh, REFRESH_MS);
}

function figure(chart, element) {
  const t = theme(), data = [], labels = [], log = view.log && chart.log;
  for (const job of page.jobs) {
    const store = stores.get(job.id);
    for (const curve of store.of(chart.series)) line({ job, chart, curve, store, view, log, t, data, labels });
  }
  const right = Math.max(56, 20 + 6.6 * Math.max(0, ...labels.map((label) => label.text.length)));
  const y = chart.percent && !log ? { range: [0, 100], ticksuffix: " %" } : {};
  const notes = endLabels(labels, t, element.clientHeight, { log, range: y.range });
  const curves = page.jobs.flatMap((job) => stores.get(job.id).of(chart.series));
  const x = view.x === "wall" ? { type: "date" } : view.x === "step" ? wholeSteps(curves.map((curve) => curve.x)) : {};
  return { data, layout: layout(t, { revision: `${chart.series}/${view.x}/${log}`, log, right, y, x, unit: unitOf(view.x), notes }) };
}

function counts() {
  for (const chart of page.charts) {
    const curves = page.jobs.flatMap((job) => stores.get(job.id).of(chart.series)), told = curves.filter((curve) => curve.total);
    const drawn = told.reduce((n, curve) => n + curve.x.length, 0), total = told.reduce((n, curve) => n + curve.total, 0);
    const jobs = new Set(page.jobs.filter((job) => stores.get(job.id).of(chart.series).length)).size;
    const points = drawn < total ? `${drawn.toLocaleString("en")} of ${total.toLocaleString("en")} points` : `${total.toLocaleString("en")} points`;
    setText(`[data-count="${chart.series}"]`, jobs ? `${points} of ${jobs} job${jobs === 1 ? "" : "s"}` : "none of these jobs has told it");
  }
  for (const card of $$("[data-card]")) {
    const series = $("[data-chart]", card).dataset.chart;
    card.dataset.told = String(page.jobs.some((job) => stores.get(job.id).of(series).length));
  }
  find();
}

// Charts that no job has a point for are left out, and those whose names do not hold the words that are looked for.
function find() {
  const words = ($("[data-find-chart]")?.value ?? "").trim().toLowerCase();
  for (const card of $$("[data-card]")) card.hidden = card.dataset.told === "false" || !card.dataset.card.includes(words);
  for (const group of $$("[data-group]")) group.hidden = $$("[data-card]", group).every((card) => card.hidden);
  const none = $("[data-none]");
  if (!none) return;
  none.hidden = $$("[data-card]").some((card) => !card.hidden);
  none.textContent = words ? "No chart of these jobs has that in its name." : "None of these jobs has told a value yet.";
}

for (const element of $$("[data-chart]")) {
  const chart = page.charts.find((one) => one.series === element.dataset.chart);
  board.add(element, () => figure(chart, element));
}
const on = (selector, type, act) => $(selector)?.addEventListener(type, (event) => act(event.target));
on("[data-smooth]", "input", (input) => { view.weight = Number(input.value); input.nextElementSibling.value = view.weight.toFixed(2); board.now(); });
on("[data-log]", "change", (input) => { view.log = input.checked; board.now(); });
on("[data-x]", "change", (input) => { view.x = input.value; board.now(); });
on("[data-find-chart]", "input", find);
on("[data-same]", "change", (input) => { for (const row of $$("[data-parameters] tr.same")) row.hidden = !input.checked; });
on("[data-copy-link]", "click", async (button) => {
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Link copied";
  } catch { // refused, or not offered outside of TLS
    button.textContent = "Copy it from the address bar";
  }
});
document.body.addEventListener("joynexus:jobs", refresh);

refresh();
