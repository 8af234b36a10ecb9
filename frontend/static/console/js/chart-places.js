// Where a curve's buckets lie on the axis that was chosen: steps, time since the start, time of day, another series.

export const RELATIVE = "@relative", WALL = "@wall";
const UNITS = [["h", 3600], ["min", 60], ["s", 1]];

// `view.x`: "" for steps, RELATIVE, WALL, or the series whose values take their place. `began`: seconds since 1970.
export function places(store, curve, x, { began, unit }) {
  if (!x) return [...curve.x]; // a copy: what is drawn does not grow before it is drawn again
  if (x === RELATIVE) return curve.time.map((at) => (at === null ? null : (at - began) / unit.seconds));
  if (x === WALL) return curve.time.map((at) => (at === null ? null : localTime(at)));
  const axis = store.of(x).find((c) => c.attempt === curve.attempt);
  if (!axis) return curve.x.map(() => null);
  let k = 0, seen = null;
  return curve.x.map((step) => {
    for (; k < axis.x.length && axis.x[k] <= step; k++) seen = axis.y[k] ?? seen;
    return seen;
  });
}

// What the axis counts, and how many seconds of relative time that is.
export function unitOf(x, page, longest) {
  if (!x) return { text: page.unit, seconds: 1 };
  if (x === WALL) return { text: "local", seconds: 1 };
  if (x !== RELATIVE) return { text: "env steps", seconds: 1 };
  const [text, seconds] = UNITS.find(([, size]) => longest >= 2 * size) ?? UNITS.at(-1);
  return { text, seconds };
}

// Plotly has no time zones: what it takes for UTC is the viewer's own.
function localTime(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
}

// The steps whose places lie within `range` of the axis, with one bucket more at either end; null if there are none.
export function stepsWithin(xs, curve, range) {
  const value = (v) => (typeof v === "string" ? Date.parse(`${v.replace(" ", "T")}Z`) : v);
  const [low, high] = range.map(value);
  let first = xs.findIndex((v) => v !== null && value(v) >= low), last = xs.findLastIndex((v) => v !== null && value(v) <= high);
  if (!xs.length || first < 0 && last < 0) return null;
  if (first < 0) first = xs.length - 1;
  if (last < 0) last = 0;
  return [curve.start(Math.max(0, Math.min(first, last) - 1)), curve.x[Math.min(xs.length - 1, Math.max(first, last) + 1)]];
}
