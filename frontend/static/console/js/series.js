// Curves of a job in the browser, decimated as the server does it: one per attempt and series, in step order.

const MOST = 500; // buckets of a curve; beyond it they are made twice as wide, as the server would
const RANK = { nan: 3, inf: 2, "-inf": 1 }; // of several in a bucket, the worst is told

// Aligned buckets of `width` steps, column by column: the last point's step, value and time, the lowest and highest
// value, and what was not finite. With width 1 a bucket is a point.
export class Curve {
  constructor({ name, attempt, width = 1, total = 0 }) {
    Object.assign(this, { name, attempt, width, total, x: [], y: [], lo: [], hi: [], time: [], special: [] });
  }

  static of(told) {
    const curve = new Curve(told);
    Object.assign(curve, { x: [...told.step], y: [...told.last], lo: [...told.min], hi: [...told.max], time: [...told.time], special: [...told.special] });
    return curve;
  }

  // Curves of one attempt, bucket by bucket: one without a point in it counts nothing there. Where a bucket holds several
  // points, the lowest and highest are bounds, since those of the parts may lie at different steps.
  static sum(parts) {
    const { name, attempt } = parts[0], width = Math.max(...parts.map((part) => part.width)), at = new Map(); // by number
    for (const part of parts) {
      const own = part.#copy();
      while (own.width < width) own.#widen();
      own.x.forEach((step, i) => {
        const number = Math.floor(step / width), sum = at.get(number) ?? { step, time: own.time[i], last: 0, lo: 0, hi: 0, special: null };
        if (step > sum.step) Object.assign(sum, { step, time: own.time[i] });
        sum.last += own.y[i] ?? 0; sum.lo += own.lo[i] ?? 0; sum.hi += own.hi[i] ?? 0;
        if ((RANK[own.special[i]] ?? 0) > (RANK[sum.special] ?? 0)) sum.special = own.special[i];
        at.set(number, sum);
      });
    }
    const told = [...at].sort(([a], [b]) => a - b).map(([, sum]) => sum), column = (key) => told.map((sum) => sum[key]);
    const total = width === 1 ? told.length : Math.max(...parts.map((part) => part.total));
    return Object.assign(new Curve({ name, attempt, width, total }), { x: column("step"), y: column("last"), lo: column("lo"), hi: column("hi"), time: column("time"), special: column("special") });
  }

  #copy() {
    const { x, y, lo, hi, time, special } = this;
    return Object.assign(new Curve(this), { x: [...x], y: [...y], lo: [...lo], hi: [...hi], time: [...time], special: [...special] });
  }

  // First step that bucket `i` may hold.
  start(i) { return Math.floor(this.x[i] / this.width) * this.width; }

  // A step that is there already is not told twice.
  add({ step, value, special, time = null }, most) {
    const place = this.#place(step);
    if (this.x[place] !== undefined && this.start(place) <= step) {
      if (this.width === 1) return false;
      this.#merge(place, { step, value, special, time });
    } else this.#insert(place, { step, value, special, time });
    this.total += 1;
    while (this.total > most && Math.floor(this.x.at(-1) / this.width) - Math.floor(this.x[0] / this.width) >= most) this.#widen();
    return true;
  }

  // Index of the bucket a step belongs to, or of the one it would come before. Nearly always that is the end.
  #place(step) {
    const number = Math.floor(step / this.width);
    let i = this.x.length;
    while (i > 0 && Math.floor(this.x[i - 1] / this.width) >= number) i--;
    return i;
  }

  #insert(i, { step, value, special, time }) {
    this.x.splice(i, 0, step); this.y.splice(i, 0, value); this.time.splice(i, 0, time);
    this.lo.splice(i, 0, value); this.hi.splice(i, 0, value); this.special.splice(i, 0, special || null);
  }

  #merge(i, { step, value, special, time, lo = value, hi = value }) {
    if (step >= this.x[i]) { this.x[i] = step; this.y[i] = value; this.time[i] = time; }
    this.lo[i] = extreme(Math.min, this.lo[i], lo);
    this.hi[i] = extreme(Math.max, this.hi[i], hi);
    if ((RANK[special] ?? 0) > (RANK[this.special[i]] ?? 0)) this.special[i] = special;
  }

  #widen() {
    const { x, y, lo, hi, time, special } = this;
    Object.assign(this, { width: this.width * 2, x: [], y: [], lo: [], hi: [], time: [], special: [] });
    x.forEach((step, i) => {
      const end = this.x.length, row = { step, value: y[i], lo: lo[i], hi: hi[i], time: time[i], special: special[i] };
      if (end && this.start(end - 1) <= step && step < this.start(end - 1) + this.width) this.#merge(end - 1, row);
      else { this.#insert(end, row); this.lo[end] = lo[i]; this.hi[end] = hi[i]; }
    });
  }
}

const extreme = (pick, a, b) => (a === null ? b : b === null ? a : pick(a, b));

export class SeriesStore {
  #curves = new Map(); // "attempt name" -> Curve
  #most;

  constructor(most = MOST) { this.#most = most; }

  // `page`: the REST form, column by column; replaces what was there.
  load(page) {
    this.#curves.clear();
    for (const told of page.series) this.#curves.set(`${told.attempt} ${told.name}`, Curve.of(told));
  }

  // `row`: one point of the live stream. False if it was known.
  add(row) {
    const key = `${row.attempt} ${row.series}`;
    if (!this.#curves.has(key)) this.#curves.set(key, new Curve({ name: row.series, attempt: row.attempt }));
    return this.#curves.get(key).add(row, this.#most);
  }

  names() { return [...new Set([...this.#curves.values()].map((curve) => curve.name))].sort(); }

  of(name) {
    return [...this.#curves.values()].filter((c) => c.name === name).sort((a, b) => a.attempt - b.attempt);
  }

  // Several series added up, one curve per attempt.
  sum(names) {
    const parts = names.flatMap((name) => this.of(name)), attempts = [...new Set(parts.map((part) => part.attempt))].sort((a, b) => a - b);
    return attempts.map((attempt) => Curve.sum(parts.filter((part) => part.attempt === attempt)));
  }

  get longest() {
    return Math.max(0, ...[...this.#curves.values()].map((c) => c.x.length));
  }
}

// Exponential moving average with bias correction over the whole series, never over the zoomed window; gaps stay gaps.
export function smooth(values, weight) {
  let mean = 0, count = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    count += 1;
    return mean / (1 - weight ** count);
  });
}

// Wilson's score interval of a rate over `episodes`, 95 %: [low, high] from 0 to 1; null where there is nothing to judge by.
export function wilson(rate, episodes) {
  if (rate === null || rate === undefined || !(episodes > 0)) return null;
  const z2 = 1.959963984540054 ** 2 / episodes, half = Math.sqrt(z2 * (rate * (1 - rate) + z2 / 4));
  return [Math.max(0, (rate + z2 / 2 - half) / (1 + z2)), Math.min(1, (rate + z2 / 2 + half) / (1 + z2))];
}
