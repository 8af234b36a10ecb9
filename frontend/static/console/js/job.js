// One job, live: charts, state, cost, events, videos.
import { $, pageData, setText } from "./dom.js";
import { showEpisodes } from "./episodes.js";
import { Gallery } from "./gallery.js";
import { showCost } from "./job-bill.js";
import { Charts } from "./job-board.js";
import { STATE_WORDS, addEvent } from "./job-events.js";
import { Made } from "./made.js";
import { JobStream, showState } from "./stream.js";
import { duration, serverClock } from "./times.js";

const TERMINAL = new Set(["succeeded", "failed", "cancelled"]);

const page = pageData("live");
const now = serverClock(page.now);
const charts = new Charts(pageData("charts"), $("[data-charts]"));
let job = { state: page.state, step: 0, total_steps: 0, started_at: page.startedAt, finished_at: page.finishedAt };
let told = page.seq; // events up to here are on the page already

const isFilm = (event) => event.type === "artifact" && event.data.kind === "video"; // shown in the gallery
let seen = 0; // metric rows up to here are in the store

function onRows(frame) {
  charts.add(frame.metrics.filter((row) => row.seq > seen));
  const news = frame.events.filter((event) => event.seq > told);
  for (const event of news) if (!isFilm(event)) addEvent(event);
  if (news.some(isFilm)) gallery?.refresh();
  if (news.some((event) => event.type === "artifact" && !isFilm(event))) made.refresh();
  seen = Math.max(seen, frame.seq);
  told = Math.max(told, frame.seq);
  const before = job.state;
  job = { ...job, ...frame.job };
  showJob();
  // A state the page draws differently (cancel button, download) comes from the server once, at the end.
  if (!TERMINAL.has(before) && TERMINAL.has(job.state)) { stream.end(); setTimeout(() => location.reload(), 1500); }
}

function showJob() {
  const item = $("[data-state-now]"), pill = $(".pill", item), bar = $("progress", item);
  pill.className = `pill ${job.state}`;
  $("use", pill).setAttribute("href", `#s-${job.state}`);
  pill.lastChild.textContent = STATE_WORDS[job.state];
  item.className = `${TERMINAL.has(job.state) ? "ended" : "now"} ${job.state}`;
  bar.className = job.state;
  bar.max = job.total_steps || 1;
  bar.value = job.step;
  setText("[data-step]", String(job.step));
  setText("[data-total]", String(job.total_steps));
  setText("[data-reason]", job.message || job.reason || "no remarks");
  document.querySelector("[data-place]")?.toggleAttribute("hidden", job.state !== "queued");
  if (job.cost) showCost(job.cost, page.words);
  if (job.compute_share !== undefined && job.compute_share !== null) setText("[data-share]", `${(job.compute_share * 100).toFixed(1)}\u00a0%`);
}

function showClock() {
  if (!job.started_at) return;
  const end = job.finished_at ? Date.parse(job.finished_at) : now(), spent = end - Date.parse(job.started_at);
  setText("[data-elapsed]", job.finished_at ? duration(spent) : `${duration(spent)} so far`);
  const left = job.step > 0 && !TERMINAL.has(job.state) ? (spent / job.step) * (job.total_steps - job.step) : 0;
  setText("[data-left]", left > 0 ? `about ${duration(left)} left` : "");
}

const badge = $("[data-live]");
const stream = new JobStream({ id: page.id, after: page.seq, onRows, onState: (state, wait) => showState(badge, state, wait) });
const videos = $("[data-videos]"), episodes = $("[data-episodes]");
const gallery = videos ? new Gallery(videos) : null;
const made = new Made($("[data-made]"));
if (episodes) showEpisodes(episodes);

setInterval(showClock, 1000);

async function start() {
  try {
    seen = await charts.history();
  } catch {
    showState(badge, "reconnecting", 2000);
    setTimeout(start, 2000);
    return;
  }
  stream.cursor = Math.min(seen, told);
  if (TERMINAL.has(page.state)) stream.end();
  else stream.open();
}

start();
