// The dialog in which an act on several jobs is confirmed and told. What it says is the server's.
import { $, $$ } from "./dom.js";

export function watchActs({ onDone }) {
  const dialog = $("#act"), body = $("#act-body");
  let done = [];

  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target !== body) return;
    if (!dialog.open) dialog.showModal();
    ($("[autofocus]", body) ?? dialog).focus();
    const told = $$("[data-done]", body);
    if (told.length) done = told.map((line) => line.dataset.done);
  });
  document.body.addEventListener("htmx:responseError", (event) => failed(event, "The server refused it."));
  document.body.addEventListener("htmx:sendError", (event) => failed(event, "The server could not be reached."));

  function failed(event, why) {
    if (event.detail.target !== body) return;
    const note = Object.assign(document.createElement("p"), { className: "note failed", textContent: `${why} Nothing is known to have been done; the list shows what is.` });
    note.setAttribute("role", "alert");
    body.replaceChildren(note);
    if (!dialog.open) dialog.showModal();
  }

  body.addEventListener("click", (event) => { if (event.target.closest("[data-close]")) event.preventDefault(); });
  dialog.addEventListener("close", () => {
    body.replaceChildren();
    if (done.length) onDone(done);
    done = [];
  });
}
