// State, actions and cost of a job: read from the server again when something changed, and ticked in between by its
// clock. An open menu or dialog, and whoever is at a control, is not disturbed.
import { $, $$, setText } from "./dom.js";
import { duration, hourText, serverClock, showTimes, wholeText } from "./times.js";

const EVERY_MS = 4000; // between two readings while only numbers change
const QUEUED_EVERY_MS = 5000; // a place in line changes without a row of the job's own
const DAY_MS = 86_400_000;
const LIVE = new Set(["queued", "starting", "running", "cancelling"]);

export class Now {
  #url;
  #clock;
  #job;
  #due = 0;
  #asked = 0;
  #readAt = -Infinity;

  constructor({ url, serverNow, state, attempt }) {
    this.#url = url;
    this.#clock = serverClock(serverNow);
    this.#job = { state, attempt };
    this.#tick();
    setInterval(() => this.#tick(), 1000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden && LIVE.has(this.#job.state)) this.read(); });
  }

  // The job as a frame of its stream tells it.
  tell(job) {
    const moved = job.state !== this.#job.state || job.attempt !== this.#job.attempt;
    this.#job = job;
    this.#progress();
    if (moved) this.read();
    else this.#later(EVERY_MS);
  }

  // What is answered last was asked last; a failure is no harm, the next news ask again.
  async read() {
    clearTimeout(this.#due);
    this.#due = 0;
    this.#readAt = performance.now();
    const asked = ++this.#asked;
    try {
      const answer = await fetch(this.#url, { headers: { Accept: "text/html" } });
      if (!answer.ok || answer.redirected) throw new Error(`${this.#url}: ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body;
      if (asked === this.#asked) this.#show(fresh);
    } catch {
      if (LIVE.has(this.#job.state)) this.#later(EVERY_MS);
    }
  }

  #show(fresh) {
    showTimes(fresh);
    for (const part of $$("[data-now]", fresh)) {
      const old = $(`[data-now="${part.dataset.now}"]`);
      if (!old || old.innerHTML === part.innerHTML) continue;
      if (inUse(old)) { this.#later(EVERY_MS); continue; }
      const held = old.contains(document.activeElement) ? document.activeElement.id : "";
      const { scrollLeft } = old;
      old.replaceChildren(...part.childNodes);
      old.scrollLeft = scrollLeft;
      window.htmx?.process(old);
      if (held) document.getElementById(held)?.focus();
    }
    this.#progress();
    this.#tick();
  }

  #progress() {
    const item = $("[data-state-now]"), bar = $("progress", item);
    if (this.#job.step === undefined) return;
    bar.max = this.#job.total_steps || 1;
    bar.value = this.#job.step;
    setText("[data-step]", String(this.#job.step), item);
    setText("[data-total]", String(this.#job.total_steps), item);
  }

  #later(wait) {
    if (this.#due) return;
    this.#due = setTimeout(() => this.read(), Math.max(0, this.#readAt + wait - performance.now()));
  }

  #tick() {
    const now = this.#clock();
    for (const element of $$("[data-since]")) element.textContent = `${duration(now - Date.parse(element.dataset.since))} so far`;
    for (const element of $$("[data-done-at]")) {
      const left = Date.parse(element.dataset.doneAt) - now;
      const at = (left > DAY_MS ? wholeText : hourText)(element.dataset.doneAt);
      element.textContent = left > 0 ? `about ${duration(left)} left, done near ${at}` : "should be done any moment";
    }
    if (this.#job.state === "queued" && !document.hidden) this.#later(QUEUED_EVERY_MS);
  }
}

// An open menu, or text that is being marked.
function inUse(part) {
  const marked = getSelection();
  return Boolean($("details[open]", part)) || (!marked.isCollapsed && part.contains(marked.anchorNode));
}
