// The time line of a job, newest first: the same words as the server's.
import { $ } from "./dom.js";
import { clockText, wholeText } from "./times.js";

const STATE_WORDS = { queued: "Queued", starting: "Starting", running: "Running", cancelling: "Cancelling", succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" };
const ARTIFACT_WORDS = { evaluation: "Evaluation finished", video: "Video of an episode", dataset: "Dataset recorded" };
const MOST = 300;

export const isFilm = (event) => event.type === "artifact" && event.data.kind === "video"; // shown in the gallery
export const isNotable = (event) => !isFilm(event) && !(event.type === "log" && event.data.level === "info");
export const stateWord = (state) => STATE_WORDS[state] ?? state;

export function addEvent(list, event) {
  if ($(`[data-seq="${event.seq}"]`, list)) return;
  const item = document.createElement("li"), time = document.createElement("time"), detail = detailOf(event);
  $("[data-none]", list)?.remove();
  item.className = `line ${event.data.state ?? event.data.level ?? ""}`;
  item.dataset.seq = event.seq;
  time.dateTime = event.occurred_at;
  time.textContent = list.dataset.most ? clockText(event.occurred_at) : wholeText(event.occurred_at);
  time.title = `${event.occurred_at.replace("T", " ").slice(0, 19)} UTC`;
  item.append(time, words(event));
  if (detail) item.append(Object.assign(document.createElement("p"), { textContent: detail }));
  list.prepend(item);
  while (list.children.length > (Number(list.dataset.most) || MOST)) list.lastElementChild.remove();
}

function words({ type, data }) {
  if (type === "state") return stateWord(data.state);
  if (type === "artifact") return ARTIFACT_WORDS[data.kind] ?? `Adapter exported, policy version ${data.policy_version}`;
  if (type === "policy_version") return `Policy version ${data.version} stored`;
  return data.message ?? type;
}

function detailOf({ type, data }) {
  if (type === "state") return data.message || data.reason || "";
  if (type === "policy_version") return `Step ${data.step}`;
  return type === "artifact" ? data.name ?? "" : "";
}
