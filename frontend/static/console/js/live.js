// Tells the page what changed: `joynexus:jobs`, `joynexus:datasets`, `joynexus:usage`, `joynexus:runtime` on the body.
// Parts that listen read their whole state anew, so after a cut of any length nothing is missing and nothing is twice.
// The cursor is the page's own: what it shows is not older than that.
import { Connection, showState } from "./connection.js";
import { $$ } from "./dom.js";
import { askAgain, watchParts } from "./parts.js";

const FRAME_EVERY_MS = 4000; // counts and health around the page
let cursor = document.body.dataset.cursor ?? "";
let due = 0;

const tell = (name) => document.body.dispatchEvent(new CustomEvent(`joynexus:${name}`));

function tellFrame() {
  if (due) return;
  due = setTimeout(() => { due = 0; if (!document.hidden) tell("frame"); }, FRAME_EVERY_MS);
}

function onFrame(frame) {
  if (frame.type !== "changed") return;
  cursor = frame.cursor;
  frame.topics.forEach(tell);
  if (frame.topics.length) tellFrame();
}

function onState(state, wait) {
  for (const badge of $$("[data-live]")) showState(badge, state, wait);
  if (state === "live") askAgain();
}

watchParts();
new Connection({ path: () => `/ws/live?after=${encodeURIComponent(cursor)}`, onFrame, onState }).open();
