// The runtime page, refreshed every few seconds.
import { $, $$, pageData, setText } from "./dom.js";
import { Board, endLabels, layout, number, theme } from "./plots.js";
import { showState } from "./stream.js";
import { clockText } from "./times.js";

const EVERY_MS = 4000;
const SERVICES = ["training", "inference", "environment"]; // in the order of their colours
const COUNTED = { training: "forwards", inference: "measurements of one or more forwards" };
const MEMBERS = { training: "jobs", inference: "requests", environment: "processes" }; // what a group consists of
const badge = $("[data-live]");
const board = new Board();
let data = pageData("live");
const url = data.url;

const STATES = {
  ready: (d) => `Serving ${d.activeJobs} job${d.activeJobs === 1 ? "" : "s"}.`,
  not_accepting: (d) => `Takes no new work: ${d.reason}. Running work goes on.`,
  unreachable: (d) => `Not reachable since ${clockText(d.seenAt)}. The figures are from then.`,
  never_seen: () => "Has not reported yet.",
};

const TONES = { stopped: "failed", busy: "running", draining: "cancelling", idle: "queued" };  // of the job states' colours

function showServices() {
  setText("[data-runtime-state]", STATES[data.state](data));
  for (const card of $$("[data-service]")) {
    const service = data.services.find((s) => s.service === card.dataset.service);
    if (service) showService(card, service, data.state !== "unreachable");
  }
}

function showService(card, service, fresh) {
  const tone = fresh ? TONES[service.state] ?? "queued" : "failed";
  const p95 = service.latency_p95_ms ?? null, window_s = Math.round(service.window_s);
  $("[data-f=state]", card).className = `pill ${tone}`;
  $("[data-f=bar]", card).value = service.busy_share * 100;
  const shown = {
    state: !fresh ? "not reachable" : service.state === "draining" ? "draining, takes no new jobs" : service.state,
    busy: (service.busy_share * 100).toFixed(1),
    window: `${window_s}\u00a0s`,
    queue: `${service.queue_depth}${service.service === "environment" ? "" : " waiting"}${service.reason ? `, ${service.reason}` : ""}`,
    group: service.group_size_mean === null ? "nothing ran" : `${number(service.group_size_mean)} ${MEMBERS[service.service] ?? ""}`,
    latency: p95 === null ? "nothing asked" : `${number(p95)}\u00a0ms`,
    seats: (service.seats_total ?? null) === null ? "not told" : `${service.seats_used} of ${service.seats_total}`,
  };
  for (const [name, text] of Object.entries(shown)) setText(`[data-f=${name}]`, text, card);
}

// One line per service. `column`: "busy" for everybody's time, "own" for one's own part of it.
function times(column, element) {
  const t = theme(), lines = [], labels = [];
  SERVICES.forEach((service, i) => {
    const { time, [column]: shares } = data.history[service], color = t.service(i + 1), y = shares.map((v) => v * 100);
    lines.push({ x: time.map((moment) => new Date(moment)), y, name: service, type: "scatter", mode: "lines", line: { color, width: 1.6 }, hovertemplate: "%{y:.1f} %" });
    const last = y.at(-2) ?? 0; // the newest bucket is not full yet
    labels.push({ y: last, text: `${service} ${last.toFixed(0)}`, color });
  });
  const range = [0, 100], notes = endLabels(labels, t, element.clientHeight, { log: false, range });
  return { data: lines, layout: layout(t, { revision: column, right: 104, y: { range, ticksuffix: " %" }, x: { type: "date", tickformat: "%H:%M" }, notes }) };
}

function groups(service) {
  const t = theme(), entries = Object.entries(data.history[service].group_sizes).map(([size, n]) => [Number(size), n]);
  const total = entries.reduce((sum, [, n]) => sum + n, 0), mean = entries.reduce((sum, [size, n]) => sum + size * n, 0) / (total || 1);
  const whole = Math.max(0, ...entries.map(([size]) => size)) < 7 ? { dtick: 1 } : {}; // no half requests on the axis
  const words = total ? `Mean ${mean.toFixed(2)} ${MEMBERS[service]} over ${total.toLocaleString("en")} ${COUNTED[service]}. Padding 0: groups are packed.` : "Nothing ran in the last 30 min.";
  setText(`[data-groups=${service}]`, words);
  return {
    data: [{ type: "bar", x: entries.map(([size]) => size), y: entries.map(([, n]) => (n / total) * 100), marker: { color: t.service(SERVICES.indexOf(service) + 1) }, hovertemplate: `%{x} ${MEMBERS[service]}: %{y:.1f} %<extra></extra>` }],
    layout: layout(t, { revision: `groups ${service}`, right: 84, bars: true, unit: MEMBERS[service], y: { range: [0, 100], ticksuffix: " %" }, x: { rangemode: "tozero", tickformat: "d", ...whole } }),
  };
}

async function refresh() {
  if (document.hidden) { showState(badge, "paused"); return; }
  try {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const had = data.services.length;
    data = await answer.json();
    if (!had && data.services.length) { location.reload(); return; }
    showState(badge, "live");
    showServices();
    board.redraw();
  } catch {
    showState(badge, "reconnecting", EVERY_MS);
  }
}

for (const column of ["busy", "own"]) {
  const element = $(`[data-chart="${column}"]`);
  board.add(element, () => times(column, element));
}
for (const service of ["training", "inference"]) board.add($(`[data-chart="groups-${service}"]`), () => groups(service));
showServices();
setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", refresh);
