// Keeps the table fresh: the same page is asked again and its rows are exchanged. Paused while hidden or in use.
import { $ } from "./dom.js";
import { showState } from "./stream.js";
import { showTimes } from "./times.js";

const EVERY_MS = 4000;
const badge = $("[data-live]");

async function refresh() {
  if (document.hidden) { showState(badge, "paused"); return; }
  const rows = $("#rows");
  if (rows.contains(document.activeElement)) return; // do not move what the reader is on
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#rows");
    if (!fresh) { location.reload(); return; } // logged out meanwhile
    showTimes(fresh);
    rows.replaceChildren(...fresh.childNodes);
    showState(badge, "live");
  } catch {
    showState(badge, "reconnecting", EVERY_MS);
  }
}

setInterval(refresh, EVERY_MS);
document.addEventListener("visibilitychange", refresh);
