// How one chart of a job is drawn: a line per attempt and series, the raw values behind, bands, limits and marked gaps.
import { setText } from "./dom.js";
import { alpha, endLabels, layout, number } from "./plots.js";
import { smooth, wilson } from "./series.js";

// `view`: {weight, log, x}; x is "" for steps, or the series whose values take their place.
export function figure(chart, { element, store, view, id, unit, theme }) {
  const t = theme(), log = view.log && chart.log, drawing = { t, log, view, store, chart, data: [], labels: [] };
  for (const curve of chart.curves) for (const own of curvesOf(store, curve)) draw(drawing, curve, own);
  if (chart.limit && drawing.data.length) limit(drawing);
  const { data, labels } = drawing;
  setText(`[data-last="${chart.id}"]`, labels.length ? labels[0].value : "");
  const right = Math.max(56, 20 + 6.6 * Math.max(0, ...labels.map((d) => d.text.length)));
  const y = chart.percent && !log ? { range: [0, 100], ticksuffix: " %" } : !log && allZero(data) ? { range: [0, 1] } : {};
  const notes = endLabels(labels, t, element.clientHeight, { log, range: y.range });
  return { data, layout: layout(t, { revision: `${id}/${chart.id}/${view.x}`, log, right, y, unit: view.x ? "env steps" : unit, notes }) };
}

// Nothing but zeros would otherwise be drawn on an axis of trillionths.
const allZero = (data) => data.length > 0 && data.every((trace) => trace.y.every((v) => !v));

const curvesOf = (store, curve) => (curve.more.length ? store.sum([curve.series, ...curve.more]) : store.of(curve.series));

function draw(drawing, curve, own) {
  const { t, log, view, store, chart, data, labels } = drawing, color = t.run(curve.color);
  const x = positions(store, own, view.x), y = own.y.map((v) => (v === null || (log && v <= 0) ? null : v * chart.scale));
  const smoothed = chart.smooth && view.weight > 0 ? smooth(y, view.weight) : y;
  const line = { type: "scatter", mode: own.x.length === 1 ? "markers" : "lines", connectgaps: false };
  if (curve.episodes) data.push(...band(store, curve, own, x, chart.scale, color));
  if (smoothed !== y) data.push({ ...line, x, y, line: { color: alpha(color, 0.24), width: 1 }, hoverinfo: "skip" });
  const name = own.attempt > 1 ? `${curve.label}, attempt ${own.attempt}` : curve.label;
  data.push({ ...line, x, y: smoothed, name, line: { color, width: 1.6, dash: curve.dotted ? "dot" : "solid" }, marker: { color, size: 6 }, hovertemplate: chart.percent ? "%{y:.1f} %" : "%{y:.4~g}" });
  const bad = own.special.flatMap((special, i) => (special ? [i] : []));
  if (bad.length) data.push({ type: "scatter", mode: "markers", x: bad.map((i) => x[i]), y: bad.map((i) => nearest(smoothed, i)), name: "not a number", marker: { color: t.failed, symbol: "x", size: 8 }, text: bad.map((i) => `${own.special[i]} at ${own.x[i]}`), hovertemplate: "%{text}" });
  const last = smoothed.findLast((v) => v !== null);
  if (last === undefined) return;
  const value = chart.percent ? `${number(last)} %` : number(last);
  labels.push({ y: last, value, text: `${curve.label} ${value}`, color });
}

// Wilson's 95 % interval around a rate, from the number of episodes told with it. Plotly fills between the two lines.
function band(store, curve, own, x, scale, color) {
  const counts = store.of(curve.episodes).find((c) => c.attempt === own.attempt);
  if (!counts) return [];
  const at = new Map(counts.x.map((step, i) => [step, counts.y[i]]));
  const both = own.y.map((rate, i) => wilson(rate, at.get(own.x[i])));
  const edge = { type: "scatter", mode: "lines", x, line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [{ ...edge, y: both.map((b) => b && b[0] * scale) }, { ...edge, y: both.map((b) => b && b[1] * scale), fill: "tonexty", fillcolor: alpha(color, 0.14) }];
}

function limit({ t, chart, data, labels }) {
  const every = data.flatMap((trace) => trace.x), { value, label } = chart.limit, y = value * chart.scale;
  data.push({ type: "scatter", mode: "lines", x: [Math.min(...every), Math.max(...every)], y: [y, y], line: { color: t.limit, width: 1.2, dash: "dot" }, hoverinfo: "skip" });
  labels.push({ y, value: number(y), text: `${label} ${number(y)}`, color: t.limit });
}

// A step's place on the axis: itself, or the newest value that the axis' series had by then.
function positions(store, own, series) {
  if (!series) return own.x;
  const axis = store.of(series).find((c) => c.attempt === own.attempt);
  if (!axis) return own.x.map(() => null);
  let k = 0, seen = null;
  return own.x.map((step) => {
    for (; k < axis.x.length && axis.x[k] <= step; k++) seen = axis.y[k] ?? seen;
    return seen;
  });
}

function nearest(values, i) {
  return values.slice(0, i).findLast((v) => v !== null) ?? values.slice(i).find((v) => v !== null) ?? 0;
}

// "412 points", or how many of how many are drawn; a chart whose curves are all silent keeps its words.
export function countText(chart, store) {
  const own = chart.curves.map((curve) => curvesOf(store, curve)).find((curves) => curves.length) ?? [];
  const drawn = own.reduce((n, c) => n + c.x.length, 0), total = own.reduce((n, c) => n + c.total, 0);
  if (!total) return null;
  return drawn < total ? `${drawn.toLocaleString("en")} of ${total.toLocaleString("en")} points` : `${total.toLocaleString("en")} point${total === 1 ? "" : "s"}`;
}
