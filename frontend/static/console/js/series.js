// Curves of a job in the browser: one per attempt and series, points in step order, each step once.

export class SeriesStore {
  #curves = new Map(); // "attempt name" -> {name, attempt, x, y, special, total}

  // `page`: the REST form, column by column; replaces what was there.
  load(page) {
    this.#curves.clear();
    for (const s of page.series) {
      const curve = { name: s.name, attempt: s.attempt, x: [], y: [], special: [], total: s.total };
      s.step.forEach((step, i) => this.#spread(curve, s, step, i));
      this.#curves.set(`${s.attempt} ${s.name}`, curve);
    }
  }

  // A bucket of several points keeps its lowest, highest and last value, so that no spike is lost.
  #spread(curve, s, step, i) {
    const previous = i ? s.step[i - 1] : step - 1;
    const inside = step - previous > 2 && s.min[i] !== null && s.min[i] !== s.max[i];
    if (inside) { this.#push(curve, step - 2, s.min[i], null); this.#push(curve, step - 1, s.max[i], null); }
    this.#push(curve, step, s.last[i], s.special[i]);
  }

  #push(curve, step, value, special) {
    curve.x.push(step); curve.y.push(value); curve.special.push(special || null);
  }

  // `row`: one point of the live stream; a step that is there already is not told twice.
  add(row) {
    const key = `${row.attempt} ${row.series}`;
    if (!this.#curves.has(key)) this.#curves.set(key, { name: row.series, attempt: row.attempt, x: [], y: [], special: [], total: 0 });
    const curve = this.#curves.get(key);
    if (curve.x.length && curve.x.at(-1) >= row.step) return;
    this.#push(curve, row.step, row.value, row.special);
    curve.total += 1;
  }

  of(name) {
    return [...this.#curves.values()].filter((c) => c.name === name).sort((a, b) => a.attempt - b.attempt);
  }

  // Several series added up, one curve per attempt: a series without a point at a step counts nothing there.
  sum(names) {
    const attempts = new Map(); // attempt -> step -> sum
    for (const name of names) for (const curve of this.of(name)) {
      if (!attempts.has(curve.attempt)) attempts.set(curve.attempt, new Map());
      const at = attempts.get(curve.attempt);
      curve.x.forEach((step, i) => at.set(step, (at.get(step) ?? 0) + (curve.y[i] ?? 0)));
    }
    return [...attempts].sort(([a], [b]) => a - b).map(([attempt, at]) => {
      const x = [...at.keys()].sort((a, b) => a - b);
      return { name: names[0], attempt, x, y: x.map((step) => at.get(step)), special: x.map(() => null), total: x.length };
    });
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
