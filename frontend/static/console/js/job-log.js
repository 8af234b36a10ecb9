// The log of a job: its newest lines, followed until the reader scrolls up; older ones on demand. At most `MOST` lines
// are on the page. Lines have numbers, so none comes twice and none is missing, whatever order they arrive in.
import { $, $$ } from "./dom.js";
import { lineElement, mark, matches, wantedOf } from "./job-log-lines.js";
import { showTimes } from "./times.js";

const MOST = 2000;
const PER_PAGE = 500;
const NEAR_END_PX = 24;

export class LogView {
  #card;
  #view;
  #list;
  #wanted;
  #newest; // number up to which every line was looked at
  #waiting = 0; // lines that came while the reader was elsewhere
  #detached = false; // the newest lines are not on the page: the reader went far back
  #asked = 0;

  constructor(card) {
    this.#card = card;
    this.#view = $("[data-log-view]", card);
    this.#list = $("[data-log-lines]", card);
    this.#newest = Number(card.dataset.logNewest);
    this.#wanted = wantedOf($("[data-log-form]", card));
    for (const line of this.#list.children) mark(line, this.#wanted.q);
    this.#listen();
    this.#settle();
  }

  // Rows of the job's stream: those that are lines, match the filter and are not here yet.
  add(events) {
    const lines = events.filter((event) => event.seq > this.#newest && matches(event, this.#wanted));
    for (const event of events) this.#newest = Math.max(this.#newest, event.seq);
    if (!lines.length) return;
    if (this.#detached) { this.#tellWaiting(lines.length); return; }
    this.#list.append(...lines.map((event) => lineElement(fromEvent(event), this.#wanted.q)));
    this.#cut("first");
    if (this.#follows) this.#toEnd();
    else this.#tellWaiting(lines.length);
    this.#count();
  }

  get #follows() { return $("[data-log-follow]", this.#card).checked; }

  set #follows(yes) { $("[data-log-follow]", this.#card).checked = yes; }

  #listen() {
    const form = $("[data-log-form]", this.#card);
    form.addEventListener("submit", (event) => { event.preventDefault(); this.#search(form); });
    $("select", form).addEventListener("change", () => this.#search(form));
    $("[type=search]", form).addEventListener("search", () => this.#search(form));
    $("[data-log-load]", this.#card).addEventListener("click", () => this.#older());
    $("[data-log-new]", this.#card).addEventListener("click", () => this.#newestAgain());
    $("[data-log-follow]", this.#card).addEventListener("change", () => { if (this.#follows) this.#newestAgain(); });
    this.#view.addEventListener("scroll", () => this.#scrolled());
  }

  #scrolled() {
    const atEnd = this.#view.scrollHeight - this.#view.scrollTop - this.#view.clientHeight < NEAR_END_PX;
    if (atEnd && !this.#detached) this.#caughtUp();
    if (atEnd !== this.#follows && !this.#detached) this.#follows = atEnd;
  }

  async #search(form) {
    this.#wanted = wantedOf(form);
    const address = new URL(location.href);
    for (const name of ["q", "level"]) this.#wanted[name] ? address.searchParams.set(name, this.#wanted[name]) : address.searchParams.delete(name);
    history.replaceState(null, "", address);
    $("select", form).toggleAttribute("data-on", Boolean(this.#wanted.level));
    const query = new URLSearchParams({ format: "text", ...this.#query() });
    $("[data-log-download]", this.#card).href = `${this.#card.dataset.logUrl}?${query}`;
    await this.#newestAgain();
  }

  // The newest lines of the filter, read anew; rows that come meanwhile are added by their numbers.
  async #newestAgain() {
    const asked = ++this.#asked, page = await this.#read({});
    if (!page || asked !== this.#asked) return;
    const since = $$("li", this.#list).filter((line) => Number(line.dataset.seq) > page.seq);
    this.#list.replaceChildren(...page.lines.map((line) => lineElement(line, this.#wanted.q)), ...since);
    this.#newest = Math.max(this.#newest, page.seq);
    this.#detached = false;
    this.#hasOlder(page.older);
    this.#follows = true;
    this.#settle();
  }

  async #older() {
    const first = this.#list.firstElementChild, before = first ? Number(first.dataset.seq) : this.#newest + 1;
    const page = await this.#read({ before });
    if (!page) return;
    const height = this.#view.scrollHeight, top = this.#view.scrollTop;
    this.#follows = false;
    this.#list.prepend(...page.lines.map((line) => lineElement(line, this.#wanted.q)));
    this.#hasOlder(page.older);
    this.#view.scrollTop = top + this.#view.scrollHeight - height; // what was read stays where it was
    this.#cut("last");
    this.#count();
  }

  async #read(where) {
    const query = new URLSearchParams({ limit: PER_PAGE, ...where, ...this.#query() });
    try {
      const answer = await fetch(`${this.#card.dataset.logUrl}?${query}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`log: ${answer.status}`);
      return await answer.json();
    } catch {
      this.#say("The log cannot be read now; try again.");
      return null;
    }
  }

  #query() {
    return Object.fromEntries(Object.entries(this.#wanted).filter(([, value]) => value));
  }

  #cut(end) {
    const lines = this.#list.children;
    if (lines.length <= MOST) return;
    if (end === "first") { while (lines.length > MOST) lines[0].remove(); this.#hasOlder(true); return; }
    while (lines.length > MOST) lines[lines.length - 1].remove();
    this.#detached = true;
    this.#tellWaiting(0);
  }

  #settle() {
    showTimes(this.#list);
    this.#toEnd();
    this.#count();
  }

  #toEnd() {
    this.#view.scrollTop = this.#view.scrollHeight;
    this.#caughtUp();
  }

  #caughtUp() {
    this.#waiting = 0;
    $("[data-log-new]", this.#card).hidden = true;
  }

  #tellWaiting(count) {
    const button = $("[data-log-new]", this.#card);
    this.#waiting += count;
    button.textContent = this.#waiting ? `${this.#waiting} new line${this.#waiting === 1 ? "" : "s"}` : "To the newest lines";
    button.hidden = false;
  }

  #hasOlder(yes) { $(".log-older", this.#card).hidden = !yes; }

  #count() {
    const lines = this.#list.children.length, found = $$("mark", this.#list).length;
    $("[data-log-none]", this.#card).hidden = lines > 0;
    if (!lines) $("[data-log-none]", this.#card).textContent = this.#wanted.q || this.#wanted.level ? "No line matches." : "Nothing was said yet. Lines appear here as the job runs.";
    this.#say(this.#wanted.q ? `${found.toLocaleString("en")} match${found === 1 ? "" : "es"} on the page` : "");
  }

  #say(text) { $("[data-log-count]", this.#card).textContent = text; }
}

function fromEvent({ seq, type, data, occurred_at }) {
  return { seq, level: type === "state" ? "state" : data.level ?? "info", state: type === "state" ? data.state : "", message: data.message || data.reason || "", occurred_at };
}
