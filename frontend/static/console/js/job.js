// One job, live: charts, state, cost, events.
import { $, $$, pageData, setText } from "./dom.js";
import { Board, alpha, endLabels, layout, number, theme } from "./plots.js";
import { SeriesStore, smooth } from "./series.js";
import { JobStream, showState } from "./stream.js";
import { clockText, duration, serverClock } from "./times.js";

const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);
const POINTS = 1500;
const REFETCH_AT = 6000; // drawn points of the longest curve; beyond it the server decimates again

const page = pageData("live");
const now = serverClock(page.now);
const store = new SeriesStore();
const board = new Board();
const view = { weight: 0.6, log: false };
let job = { state: page.state, step: 0, total_steps: 0, started_at: page.startedAt, finished_at: page.finishedAt };
let told = page.seq; // events up to here are on the page already

function figure(chart, element) {
  return () => {
    const t = theme(), log = view.log && chart.log, data = [], labels = [];
    for (const curve of chart.curves) for (const own of store.of(curve.series)) draw(chart, curve, own, t, log, data, labels);
    setText(`[data-last="${chart.id}"]`, labels.length ? number(labels[0].y) : "");
    const right = Math.max(56, 20 + 6.6 * Math.max(0, ...labels.map((d) => d.text.length)));
    return { data, layout: layout(t, { revision: `${page.id}/${chart.id}`, log, right, unit: "step", notes: endLabels(labels, t, element.clientHeight, { log }) }) };
  };
}

function draw(chart, curve, own, t, log, data, labels) {
  const color = t.run(curve.color), y = own.y.map((v) => (v === null || (log && v <= 0) ? null : v * chart.scale));
  const smoothed = chart.smooth && view.weight > 0 ? smooth(y, view.weight) : y;
  const line = { type: "scatter", mode: own.x.length === 1 ? "markers" : "lines", connectgaps: false };
  if (smoothed !== y) data.push({ ...line, x: own.x, y, line: { color: alpha(color, 0.24), width: 1 }, hoverinfo: "skip" });
  const name = own.attempt > 1 ? `${curve.label}, attempt ${own.attempt}` : curve.label;
  data.push({ ...line, x: own.x, y: smoothed, name, line: { color, width: 1.6, dash: curve.dotted ? "dot" : "solid" }, marker: { color, size: 6 }, hovertemplate: "%{y:.4~g}" });
  const bad = own.x.filter((_, i) => own.special[i]);
  if (bad.length) data.push({ type: "scatter", mode: "markers", x: bad, y: bad.map((step) => nearest(own, smoothed, step)), name: "not a number", marker: { color: t.failed, symbol: "x", size: 8 }, hovertemplate: "not finite at step %{x}" });
  const last = smoothed.findLast((v) => v !== null);
  if (last !== undefined) labels.push({ y: last, text: `${curve.label} ${number(last)}`, color });
}

function nearest(own, values, step) {
  const i = own.x.indexOf(step);
  return values.slice(0, i).findLast((v) => v !== null) ?? values.slice(i).find((v) => v !== null) ?? 0;
}

function counts() {
  for (const chart of page.charts) {
    const own = store.of(chart.curves[0].series), drawn = own.reduce((n, c) => n + c.x.length, 0), total = own.reduce((n, c) => n + c.total, 0);
    if (total) setText(`[data-count="${chart.id}"]`, drawn < total ? `${drawn.toLocaleString("en")} of ${total.toLocaleString("en")} points` : `${total.toLocaleString("en")} point${total === 1 ? "" : "s"}`);
  }
}

async function history() {
  const answer = await fetch(`/api/v1/jobs/${page.id}/metrics?max_points=${POINTS}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`metrics: ${answer.status}`);
  const loaded = await answer.json();
  store.load(loaded);
  return loaded.seq;
}

async function refetch() {
  stream.cursor = Math.max(stream.cursor, await history());
}

let seen = 0; // metric rows up to here are in the store

function onRows(frame) {
  for (const row of frame.metrics) if (row.seq > seen) store.add(row);
  for (const event of frame.events) if (event.seq > told) addEvent(event);
  seen = Math.max(seen, frame.seq);
  told = Math.max(told, frame.seq);
  const before = job.state;
  job = { ...job, ...frame.job };
  showJob();
  counts();
  board.redraw();
  if (store.longest > REFETCH_AT) refetch();
  // A state the page draws differently (cancel button, download) comes from the server once, at the end.
  if (!TERMINAL.has(before) && TERMINAL.has(job.state)) { stream.end(); setTimeout(() => location.reload(), 1500); }
}

const WORDS = { queued: "Queued", starting: "Starting", running: "Running", cancelling: "Cancelling", succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" };

function showJob() {
  const item = $("[data-state-now]"), pill = $(".pill", item), bar = $("progress", item);
  pill.className = `pill ${job.state}`;
  $("use", pill).setAttribute("href", `#s-${job.state}`);
  pill.lastChild.textContent = WORDS[job.state];
  item.className = `${TERMINAL.has(job.state) ? "ended" : "now"} ${job.state}`;
  bar.className = job.state;
  bar.max = job.total_steps || 1;
  bar.value = job.step;
  setText("[data-step]", String(job.step));
  setText("[data-total]", String(job.total_steps));
  setText("[data-reason]", job.message || job.reason || "no remarks");
  if (job.cost) showCost(job.cost);
  if (job.compute_share !== undefined && job.compute_share !== null) setText("[data-share]", `${(job.compute_share * 100).toFixed(1)}\u00a0%`);
}

const METERS = { "train.samples": "Training samples", "train.compute_us": "Device time" };

// The total and the lines it is made of come in one frame, so they always add up.
function showCost(cost) {
  setText("[data-cost]", money(cost));
  const list = $("[data-lines]");
  for (const old of $$("[data-line]", list)) old.remove();
  list.prepend(...cost.lines.flatMap((line) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.dataset.line = dd.dataset.line = "";
    dt.textContent = `${METERS[line.meter] ?? line.meter}, ${quantity(line)}`;
    dd.textContent = money({ amount: line.amount, currency: cost.currency });
    return [dt, dd];
  }));
}

function quantity({ meter, quantity: count }) {
  if (!meter.endsWith("compute_us")) return count.toLocaleString("en");
  return `${(count / 1e6).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })}\u00a0s`;
}

function money({ amount, currency }) {
  const value = Number(amount);
  const digits = value > 0 && value < 0.01 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return new Intl.NumberFormat("en", { style: "currency", currency, ...digits }).format(value);
}

function showClock() {
  if (!job.started_at) return;
  const end = job.finished_at ? Date.parse(job.finished_at) : now(), spent = end - Date.parse(job.started_at);
  setText("[data-elapsed]", job.finished_at ? duration(spent) : `${duration(spent)} so far`);
  const left = job.step > 0 && !TERMINAL.has(job.state) ? (spent / job.step) * (job.total_steps - job.step) : 0;
  setText("[data-left]", left > 0 ? `about ${duration(left)} left` : "");
}

function addEvent(event) {
  const list = $("[data-events]"), item = document.createElement("li"), time = document.createElement("time");
  $("[data-none]", list)?.remove();
  item.className = `line ${event.data.state ?? event.data.level ?? ""}`;
  time.dateTime = event.occurred_at;
  time.textContent = clockText(event.occurred_at);
  time.title = `${event.occurred_at.replace("T", " ").slice(0, 19)} UTC`;
  item.append(time, words(event));
  if (event.type === "state" && event.data.message) { const p = document.createElement("p"); p.textContent = event.data.message; item.append(p); }
  list.prepend(item);
  while (list.children.length > 200) list.lastElementChild.remove();
}

function words({ type, data }) {
  if (type === "state") return WORDS[data.state] ?? data.state;
  if (type === "artifact") return `Adapter exported, policy version ${data.policy_version}`;
  if (type === "policy_version") return `Policy version ${data.version} stored`;
  return data.message ?? type;
}

const badge = $("[data-live]");
const stream = new JobStream({ id: page.id, after: page.seq, onRows, onState: (state, wait) => showState(badge, state, wait) });

for (const element of $$("[data-chart]")) board.add(element, figure(page.charts.find((c) => c.id === element.dataset.chart), element));
$("[data-smooth]").addEventListener("input", (event) => { view.weight = Number(event.target.value); event.target.nextElementSibling.value = view.weight.toFixed(2); board.now(); });
$("[data-log]").addEventListener("change", (event) => { view.log = event.target.checked; board.now(); });
setInterval(showClock, 1000);

async function start() {
  try {
    seen = await history();
  } catch {
    showState(badge, "reconnecting", 2000);
    setTimeout(start, 2000);
    return;
  }
  counts();
  board.now();
  stream.cursor = Math.min(seen, told);
  if (TERMINAL.has(page.state)) stream.end();
  else stream.open();
}

start();
