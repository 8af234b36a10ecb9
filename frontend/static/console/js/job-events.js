// The time line of a job, newest first.
import { $ } from "./dom.js";
import { clockText } from "./times.js";

export const STATE_WORDS = { queued: "Queued", starting: "Starting", running: "Running", cancelling: "Cancelling", succeeded: "Succeeded", failed: "Failed", cancelled: "Cancelled" };
const ARTIFACT_WORDS = { evaluation: "Evaluation finished", video: "Video of an episode", dataset: "Dataset recorded" };

export function addEvent(event) {
  const list = $("[data-events]"), item = document.createElement("li"), time = document.createElement("time");
  $("[data-none]", list)?.remove();
  item.className = `line ${event.data.state ?? event.data.level ?? ""}`;
  time.dateTime = event.occurred_at;
  time.textContent = clockText(event.occurred_at);
  time.title = `${event.occurred_at.replace("T", " ").slice(0, 19)} UTC`;
  item.append(time, words(event));
  if (event.type === "state" && event.data.message) { const p = document.createElement("p"); p.textContent = event.data.message; item.append(p); }
  list.prepend(item);
  while (list.children.length > 200) list.lastElementChild.remove();
}

function words({ type, data }) {
  if (type === "state") return STATE_WORDS[data.state] ?? data.state;
  if (type === "artifact") return ARTIFACT_WORDS[data.kind] ?? `Adapter exported, policy version ${data.policy_version}`;
  if (type === "policy_version") return `Policy version ${data.version} stored`;
  return data.message ?? type;
}
