// Selected jobs, kept for this tab of the browser and this tenant: filters and pages come and go.

/** @typedef {{id: string, number: number, name: string}} Chosen */

const KEPT_MAX = 200; // what one act takes

export class Selection {
  #key;
  /** @type {Map<string, Chosen>} */
  #jobs = new Map();
  onChange = () => {};

  constructor(tenant) {
    this.#key = `joynexus-jobs-${tenant}`;
    this.read();
  }

  get size() { return this.#jobs.size; }
  get jobs() { return [...this.#jobs.values()]; }
  has(id) { return this.#jobs.has(id); }

  /** @param {Chosen[]} jobs */
  set(jobs, on) {
    for (const job of jobs) {
      if (!on) this.#jobs.delete(job.id);
      else if (this.#jobs.size < KEPT_MAX || this.has(job.id)) this.#jobs.set(job.id, job);
    }
    this.#changed();
  }

  drop(ids) {
    for (const id of ids) this.#jobs.delete(id);
    this.#changed();
  }

  read() {
    try {
      const known = JSON.parse(sessionStorage.getItem(this.#key) ?? "[]");
      this.#jobs = new Map(known.map((job) => [job.id, job]));
    } catch { this.#jobs = new Map(); } // not kept: a selection of this page only
  }

  #changed() {
    try { sessionStorage.setItem(this.#key, JSON.stringify(this.jobs)); } catch { /* not kept */ }
    this.onChange();
  }
}
