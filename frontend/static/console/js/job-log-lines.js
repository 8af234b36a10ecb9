// Lines of a log: which ones a filter wants, and what they look like, with what was searched for marked.
import { $ } from "./dom.js";
import { stateWord } from "./job-events.js";
import { clockText } from "./times.js";

const LEVELS = ["info", "warning", "error"];

export function wantedOf(form) {
  const data = new FormData(form);
  return { q: data.get("q").trim(), level: data.get("level") };
}

// The same judgement as the server's: a level means that or a graver one, and leaves out changes of state.
export function matches({ type, data }, { q, level }) {
  if (type !== "log" && type !== "state") return false;
  if (level && (type !== "log" || LEVELS.indexOf(data.level ?? "info") < LEVELS.indexOf(level))) return false;
  return !q || (data.message ?? "").toLowerCase().includes(q.toLowerCase());
}

export function lineElement({ seq, level, state, message, occurred_at }, query) {
  const line = document.createElement("li"), time = document.createElement("time"), said = message ? `: ${message}` : "";
  line.className = `log-line of-${level}`;
  line.dataset.seq = seq;
  time.dateTime = occurred_at;
  time.textContent = clockText(occurred_at);
  time.title = `${occurred_at.replace("T", " ").slice(0, 19)} UTC`;
  line.append(time, span("lv", level), span("tx", state ? `${stateWord(state)}${said}` : message));
  mark(line, query);
  return line;
}

export function mark(line, query) {
  const text = $(".tx", line), words = text.textContent, found = query ? words.toLowerCase().split(query.toLowerCase()) : [];
  if (found.length < 2) return;
  let at = 0;
  const parts = found.flatMap((part, i) => {
    const plain = words.slice(at, at + part.length), hit = words.slice(at + part.length, at + part.length + query.length);
    at += part.length + query.length;
    return i < found.length - 1 ? [plain, Object.assign(document.createElement("mark"), { textContent: hit })] : [plain];
  });
  text.replaceChildren(...parts);
}

function span(name, text) {
  return Object.assign(document.createElement("span"), { className: name, textContent: text });
}
