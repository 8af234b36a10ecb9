// One job's line in a chart of several: where its points lie on the chosen axis, and how it is drawn.
import { alpha, number, plain } from "./plots.js";
import { smooth } from "./series.js";

export const unitOf = (x) => ({ step: "step", relative: "min", wall: "" })[x] ?? "env steps";

// `curve`'s places on the axis `x`: steps, minutes since the job began, moments, or the values of another series.
export function placeOf(curve, x, job, store) {
  if (x === "step") return curve.x;
  if (x === "relative") return curve.time.map((at) => (at === null ? null : (at - job.startedAt) / 60));
  if (x === "wall") return curve.time.map((at) => (at === null ? null : new Date(at * 1000).toISOString()));
  const axis = store.of(x).find((other) => other.attempt === curve.attempt);
  if (!axis) return curve.x.map(() => null);
  let at = 0, seen = null;
  return curve.x.map((step) => {
    for (; at < axis.x.length && axis.x[at] <= step; at++) seen = axis.y[at] ?? seen;
    return seen;
  });
}

// Adds the traces of one attempt to `data` and its end to `labels`.
export function line({ job, chart, curve, store, view, log, t, data, labels }) {
  const color = t.run(job.slot), x = placeOf(curve, view.x, job, store), name = `J-${job.number} ${plain(job.name)}`;
  const y = curve.y.map((value) => (value === null || (log && value <= 0) ? null : value * chart.scale));
  const smoothed = chart.smooth && view.weight > 0 ? smooth(y, view.weight) : y;
  const base = { type: "scatter", mode: curve.x.length === 1 ? "markers" : "lines", connectgaps: false };
  if (smoothed !== y) data.push({ ...base, x, y, line: { color: alpha(color, 0.24), width: 1 }, hoverinfo: "skip" });
  data.push({
    ...base, x, y: smoothed, name: curve.attempt > 1 ? `${name}, attempt ${curve.attempt}` : name, marker: { color, size: 6 },
    line: { color, width: 1.6, dash: job.dashed ? "dash" : "solid" }, hovertemplate: chart.percent ? "%{y:.1f} %" : "%{y:.4~g}",
  });
  const last = smoothed.findLast((value) => value !== null);
  if (last === undefined || curve.attempt !== Math.max(...store.of(chart.series).map((one) => one.attempt))) return;
  labels.push({ y: last, text: `J-${job.number} ${chart.percent ? `${number(last)} %` : number(last)}`, color });
}
