// One job, live. Its stream tells rows; what they mean for state, actions and cost is read from the server anew.
import { $, $$, pageData } from "./dom.js";
import { Now } from "./job-now.js";
import { addEvent, isFilm, isNotable } from "./job-events.js";
import { LogView } from "./job-log.js";
import { Made } from "./made.js";
import { JobStream, showState } from "./stream.js";

const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);
const RETRY_MS = 2000;

const page = pageData("live");
const badge = $("[data-live]");
const now = new Now({ url: `/jobs/${page.id}/now/?tab=${page.tab}`, serverNow: page.now, state: page.state, attempt: page.attempt });
const made = new Made($("[data-made]"));
const log = $("[data-log-view]") ? new LogView($("#log")) : null;
const lists = $$("[data-events]:not([data-past])");
const stream = new JobStream({ id: page.id, after: page.seq, onRows, onState: (state, wait) => showState(badge, state, wait) });
let told = page.seq; // events up to here are on the page already
let seen = 0; // metric rows up to here are in the curves
let charts = null;

function onRows(frame) {
  charts?.add(frame.metrics.filter((row) => row.seq > seen));
  const news = frame.events.filter((event) => event.seq > told);
  for (const event of news.filter(isNotable)) for (const list of lists) addEvent(list, event);
  log?.add(news);
  seen = Math.max(seen, frame.seq);
  told = Math.max(told, frame.seq);
  if (news.some((event) => event.type === "artifact" && !isFilm(event))) made.refresh();
  if (news.some(isFilm)) document.body.dispatchEvent(new CustomEvent("joynexus:films"));
  if (news.some((event) => event.type === "policy_version" || (event.type === "artifact" && !isFilm(event)))) document.body.dispatchEvent(new CustomEvent("joynexus:results"));
  now.tell(frame.job);
  if (TERMINAL.has(frame.job.state)) stream.end(); // its last rows are here: the frame tells the state and all before it
}

// The curves' history is one answer that may be newer than the page: the stream goes on from the older of both.
async function start() {
  const ended = TERMINAL.has(page.state);
  if (ended) stream.end();
  const section = $("[data-charts]");
  if (section) {
    const { Charts } = await import("./job-board.js");
    charts ??= new Charts(pageData("charts"), section);
    try {
      seen = await charts.history();
    } catch {
      showState(badge, "reconnecting", RETRY_MS);
      setTimeout(start, RETRY_MS);
      return;
    }
    stream.cursor = Math.min(seen, told);
  }
  if (ended) showState(badge, "ended");
  else stream.open();
}

// A form that spends or ends something is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-once]")) for (const button of $$("button", event.target)) setTimeout(() => { button.disabled = true; });
});
// Refused forms come back as the part with the reason in it.
document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (![409, 412, 422].includes(event.detail.xhr.status)) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});
// A new name is also in the question before cancelling.
document.body.addEventListener("htmx:load", ({ detail: { elt } }) => {
  if (elt.id === "name") for (const place of $$("[data-job-name]")) place.textContent = $("[data-name]", elt).textContent;
});

$(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone they are a strip
start();
