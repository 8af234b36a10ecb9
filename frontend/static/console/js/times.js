// Times in the viewer's zone with UTC in the tooltip; durations from the server's clock, never from the browser's.
import { $$ } from "./dom.js";

const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const HOUR = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

export function showTimes(root) {
  for (const element of $$("time[data-time]", root)) {
    const moment = new Date(element.dateTime);
    element.textContent = text(moment, element.dataset.time);
    element.title = `${element.dateTime.replace("T", " ").slice(0, 19)} UTC`;
  }
}

// `data-age`: seconds since something when the part was written; goes on by the browser's monotonic timer.
const written = new WeakMap();

export function tickAges() {
  const tick = () => {
    for (const element of $$("[data-age]")) {
      const begun = written.get(element) ?? performance.now();
      written.set(element, begun);
      element.textContent = duration(Number(element.dataset.age) * 1000 + performance.now() - begun);
    }
  };
  tick();
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
}

// "clock": to the second; "short": the time if it was today, else the day.
function text(moment, form) {
  if (form === "clock") return CLOCK.format(moment);
  if (form === "short") return (moment.toDateString() === new Date().toDateString() ? HOUR : DAY).format(moment);
  return WHOLE.format(moment);
}

export function clockText(iso) {
  return CLOCK.format(new Date(iso));
}

export function wholeText(iso) {
  return WHOLE.format(new Date(iso));
}

export function hourText(iso) {
  return HOUR.format(new Date(iso));
}

// A clock that started at the server's time and runs with the browser's monotonic timer.
export function serverClock(nowIso) {
  const offset = Date.parse(nowIso) - performance.now();
  return () => performance.now() + offset;
}

export function duration(milliseconds) {
  const total = Math.max(0, Math.floor(milliseconds / 1000));
  const hours = Math.floor(total / 3600), minutes = Math.floor((total % 3600) / 60), seconds = total % 60;
  if (hours) return `${hours}\u00a0h ${minutes}\u00a0min`;
  return minutes ? `${minutes}\u00a0min ${String(seconds).padStart(2, "0")}\u00a0s` : `${seconds}\u00a0s`;
}
