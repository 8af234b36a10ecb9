// How one chart of a job is drawn: a line per attempt and series, the raw values behind, bands, limits and marked gaps.
import { places, unitOf, WALL } from "./chart-places.js";
import { alpha, endLabels, layout, number, plain } from "./plots.js";
import { smooth, wilson } from "./series.js";

const SPIKE = 0.3; // opacity of what lies behind the line

// The curves of a chart with what is known of them: `fine`, where a range was read in narrower buckets.
export const curvesOf = (store, curve) => (curve.more.length ? store.sum([curve.series, ...curve.more]) : store.of(curve.series));
export const namesOf = (chart) => chart.curves.flatMap((curve) => [curve.series, ...curve.more]);
export const keyOf = (curve, own) => `${curve.label} ${own.attempt}`;

// `view`: {weight, log, x, hidden}; `page`: what `charts_context` tells; `zoom`: the range that was read finer, or null.
// Returns Plotly's figure with `value` (the newest of the first curve) and `unshown` (values a log axis has no place for).
export function figure(chart, { element, store, zoom, view, page, theme }) {
  const t = theme(), log = view.log && chart.log;
  const told = chart.curves.flatMap((curve) => curvesOf(store, curve).map((own) => ({ curve, own })));
  const unit = unitOf(view.x, page, Math.max(0, ...told.map(({ own }) => (own.time.at(-1) ?? 0) - page.began)));
  const drawing = { t, log, view, store, chart, zoom, place: (c, from = store) => places(from, c, view.x, { began: page.began, unit }), data: [], labels: [], unshown: 0 };
  for (const { curve, own } of told) if (!view.hidden.has(`${chart.id} ${keyOf(curve, own)}`)) draw(drawing, curve, own, own === newest(told, curve));
  if (chart.limit && drawing.data.length) limit(drawing);
  const { data, labels, unshown } = drawing, revision = `${page.id}/${chart.id}`;
  const right = Math.max(56, 20 + 6.6 * Math.max(0, ...labels.map((d) => d.text.length)));
  const y = { uirevision: `${revision}/${log}`, ...(chart.percent && !log ? { range: [0, 100], ticksuffix: " %" } : !log && allZero(data) ? { range: [0, 1] } : {}) };
  const x = { uirevision: `${revision}/${view.x}`, type: view.x === WALL ? "date" : "linear", ...(view.x ? {} : wholeSteps(told.map(({ own }) => own.x))) };
  const notes = endLabels(labels, t, element.clientHeight, { log, range: y.range });
  return { data, layout: layout(t, { revision, log, right, x, y, unit: unit.text, notes }), value: labels[0]?.value ?? "", unshown };
}

// While steps are few every one has a tick: there is no half step.
export function wholeSteps(columns) {
  const first = Math.min(...columns.map((x) => x[0] ?? Infinity)), last = Math.max(...columns.map((x) => x.at(-1) ?? -Infinity));
  return last - first <= 7 ? { dtick: 1 } : {};
}

const newest = (told, curve) => told.findLast((one) => one.curve === curve).own;

// Nothing but zeros would otherwise be drawn on an axis of trillionths.
const allZero = (data) => data.length > 0 && data.every((trace) => trace.y.every((v) => !v));

function draw(drawing, curve, own, isNewest) {
  const { t, log, view, chart, data, labels } = drawing, color = isNewest ? t.run(curve.color) : alpha(t.run(curve.color), 0.55);
  const shown = (v) => (v === null || (log && v <= 0) ? null : v * chart.scale);
  const parts = partsOf(drawing, curve, own), y = own.y.map(shown), smoothed = chart.smooth && view.weight > 0;
  const line = { type: "scatter", mode: "lines", connectgaps: false };
  const name = plain(own.attempt > 1 || !isNewest ? `${curve.label}, attempt ${own.attempt}` : curve.label);
  if (curve.episodes) data.push(...band(drawing, curve, own, color));
  const raw = behind(parts, shown), decimated = own.width > 1;
  if (smoothed || decimated) data.push({ ...line, ...raw, line: { color: alpha(t.run(curve.color), SPIKE), width: 1 }, hoverinfo: "skip" });
  const main = smoothed ? { x: drawing.place(own), y: smooth(y, view.weight) } : { x: parts.flatMap((p) => p.x), y: parts.flatMap((p) => p.y.map(shown)) };
  data.push({
    ...line, ...main, name, mode: own.x.length === 1 ? "markers" : "lines", marker: { color, size: 6 },
    line: { color, width: 1.6, dash: curve.dotted ? "dot" : isNewest ? "solid" : "dash" }, hovertemplate: chart.percent ? "%{y:.1f} %" : "%{y:.4~g}",
  });
  drawing.unshown += log ? parts.reduce((n, p) => n + p.lo.filter((v) => v !== null && v <= 0).length, 0) : 0;
  mark(drawing, parts, main);
  const last = main.y.findLast((v) => v !== null);
  if (last === undefined || !isNewest) return;
  const value = chart.percent ? `${number(last)} %` : number(last);
  labels.push({ y: last, value, text: plain(`${curve.label} ${value}`), color: t.run(curve.color) });
}

// A curve in up to three parts: before, within and after the range that was read in narrower buckets.
function partsOf({ zoom, place }, curve, own) {
  const fine = zoom && curvesOf(zoom.store, curve).find((c) => c.attempt === own.attempt && c.width < own.width);
  const all = part(own, place(own));
  if (!fine || !fine.x.length) return [all];
  const cut = (keep) => Object.fromEntries(Object.entries(all).map(([name, column]) => [name, Array.isArray(column) ? column.filter((_, i) => keep(i)) : column]));
  const inner = part(fine, place(fine));
  return [cut((i) => own.x[i] < fine.start(0)), inner, cut((i) => own.start(i) > fine.x.at(-1))];
}

const part = (curve, x) => ({ curve, x, steps: curve.x, y: curve.y, lo: curve.lo, hi: curve.hi, special: curve.special });

// From the lowest to the highest of every bucket, so that no spike is lost; the nearer end of the two comes first.
function behind(parts, shown) {
  const x = [], y = [];
  for (const part of parts) part.x.forEach((place, i) => {
    const low = shown(part.lo[i]), high = shown(part.hi[i]);
    if (low === high || low === null) { x.push(place); y.push(high); return; }
    const before = y.at(-1) ?? low, [first, second] = Math.abs(before - low) <= Math.abs(before - high) ? [low, high] : [high, low];
    x.push(place, place); y.push(first, second);
  });
  return { x, y };
}

// Where a value was not finite: a cross beside the gap, with words.
function mark({ t, data }, parts, main) {
  const bad = parts.flatMap((part) => part.special.flatMap((special, i) => (special ? [{ x: part.x[i], text: wordsOf(part, i) }] : [])));
  if (!bad.length) return;
  const at = new Map(main.x.map((x, i) => [x, i]));
  data.push({
    type: "scatter", mode: "markers", x: bad.map((b) => b.x), y: bad.map((b) => nearest(main.y, at.get(b.x) ?? 0)), name: "not a number",
    marker: { color: t.failed, symbol: "x", size: 8 }, text: bad.map((b) => b.text), hovertemplate: "%{text}",
  });
}

const NAMES = { nan: "NaN", inf: "Infinity", "-inf": "−Infinity" };

export function wordsOf({ special, steps, curve }, i) {
  const first = Math.floor(steps[i] / curve.width) * curve.width, name = NAMES[special[i]];
  return first === steps[i] ? `${name} at ${steps[i].toLocaleString("en")}` : `${name} between ${first.toLocaleString("en")} and ${steps[i].toLocaleString("en")}`;
}

function nearest(values, i) {
  return values.slice(0, i + 1).findLast((v) => v !== null) ?? values.slice(i).find((v) => v !== null) ?? 0;
}

// Wilson's 95 % interval around a rate, from the number of episodes told with it. Plotly fills between the two lines.
function band({ store, chart, place, t }, curve, own) {
  const counts = store.of(curve.episodes).find((c) => c.attempt === own.attempt);
  if (!counts) return [];
  const at = new Map(counts.x.map((step, i) => [step, counts.y[i]]));
  const both = own.y.map((rate, i) => wilson(rate, at.get(own.x[i])));
  const edge = { type: "scatter", mode: "lines", x: place(own), line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  return [{ ...edge, y: both.map((b) => b && b[0] * chart.scale) }, { ...edge, y: both.map((b) => b && b[1] * chart.scale), fill: "tonexty", fillcolor: alpha(t.run(curve.color), 0.14) }];
}

function limit({ t, chart, data, labels }) {
  const { value, label } = chart.limit, y = value * chart.scale;
  let low = null, high = null; // by comparison: on the axis of wall time they are texts
  for (const trace of data) for (const x of trace.x) {
    if (x !== null && (low === null || x < low)) low = x;
    if (x !== null && (high === null || x > high)) high = x;
  }
  data.push({ type: "scatter", mode: "lines", x: [low, high], y: [y, y], line: { color: t.limit, width: 1.2, dash: "dot" }, hoverinfo: "skip" });
  labels.push({ y, value: number(y), text: `${label} ${number(y)}`, color: t.limit });
}
