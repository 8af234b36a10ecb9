// The runtime page, refreshed every few seconds.
import { $, $$, pageData, setText } from "./dom.js";
import { Board, alpha, layout, number, readable, theme } from "./plots.js";
import { showState } from "./stream.js";
import { clockText } from "./times.js";

const EVERY_MS = 4000;
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

function showServices() {
  setText("[data-runtime-state]", STATES[data.state](data));
  for (const card of $$("[data-service]")) {
    const service = data.services.find((s) => s.service === card.dataset.service);
    if (!service) continue;
    const fresh = data.state !== "unreachable";
    $("[data-f=state]", card).className = `pill ${!fresh ? "failed" : service.state === "busy" ? "running" : service.state === "stopped" ? "failed" : "queued"}`;
    setText("[data-f=state]", fresh ? service.state : "not reachable", card);
    setText("[data-f=busy]", (service.busy_share * 100).toFixed(1), card);
    setText("[data-f=window]", String(Math.round(service.window_s)), card);
    $("[data-f=bar]", card).value = service.busy_share * 100;
    setText("[data-f=queue]", `${service.queue_depth} waiting${service.reason ? `, ${service.reason}` : ""}`, card);
    setText("[data-f=group]", service.group_size_mean === null ? "nothing ran" : `${number(service.group_size_mean)} jobs`, card);
  }
}

function busy() {
  const t = theme(), { time, busy: all, own } = data.history, pct = (v) => v.map((x) => x * 100);
  const line = (y, name, color, fill) => ({ x: time, y: pct(y), name, type: "scatter", mode: "lines", line: { color, width: 1.6 }, ...(fill ? { fill: "tozeroy", fillcolor: alpha(color, 0.16) } : {}), hovertemplate: "%{y:.1f} %" });
  const label = (y, text, color) => ({ xref: "paper", x: 1, xanchor: "left", xshift: 6, yref: "y", y: y * 100, showarrow: false, text, font: { color: readable(color, t), size: 11, weight: 600 } });
  const allEnd = all.at(-2) ?? 0, ownEnd = own.at(-2) ?? 0;
  return {
    data: [line(all, "all", t.service(1), true), line(own, "yours", t.run(2), false)],
    layout: layout(t, { revision: "busy", right: 64, y: { range: [0, 100], ticksuffix: " %" }, x: { type: "date", tickformat: "%H:%M" }, notes: [label(Math.max(allEnd, ownEnd + 0.09), "all", t.service(1)), label(ownEnd, "yours", t.run(2))] }),
  };
}

function groups() {
  const t = theme(), entries = Object.entries(data.history.group_sizes).map(([size, n]) => [Number(size), n]);
  const total = entries.reduce((sum, [, n]) => sum + n, 0), mean = entries.reduce((sum, [size, n]) => sum + size * n, 0) / (total || 1);
  setText("[data-groups]", total ? `Mean ${mean.toFixed(2)} over ${total.toLocaleString("en")} forwards. Padding 0: groups are packed.` : "No forward in the last 30 min.");
  return {
    data: [{ type: "bar", x: entries.map(([size]) => size), y: entries.map(([, n]) => (n / total) * 100), marker: { color: t.service(1) }, hovertemplate: "%{x} jobs: %{y:.1f} %<extra></extra>" }],
    layout: layout(t, { revision: "groups", right: 48, bars: true, unit: "jobs", y: { range: [0, 100], ticksuffix: " %" }, x: { dtick: 1 } }),
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

board.add($('[data-chart="busy"]'), busy);
board.add($('[data-chart="groups"]'), groups);
showServices();
setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", refresh);
