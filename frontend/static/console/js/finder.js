// The search field of the top bar: results below it while it has the focus; arrow keys go through them.
import { $, $$ } from "./dom.js";

export function watchFinder() {
  const form = $("[data-finder]");
  if (!form) return;
  const field = $("[data-find]", form), found = $("#found", form);
  let closed = false; // by Escape: an answer that comes later opens nothing, until somebody types or comes back
  const show = (open) => { found.hidden = !open || closed || !field.value.trim(); };
  const links = () => $$("a", found);

  found.addEventListener("htmx:afterSwap", () => show(form.contains(document.activeElement)));
  field.addEventListener("input", () => { closed = false; if (!field.value.trim()) show(false); });
  field.addEventListener("focus", () => show(found.childElementCount > 0));
  form.addEventListener("focusout", () => setTimeout(() => { if (!form.contains(document.activeElement)) { show(false); closed = false; } }));
  form.addEventListener("keydown", (event) => {
    const own = links(), at = own.indexOf(document.activeElement);
    if (event.key === "Escape") {
      event.preventDefault();
      closed = true;
      if (at >= 0) field.focus(); else field.blur();
      show(false);
    }
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || found.hidden || !own.length) return;
    event.preventDefault();
    (at + by < 0 ? field : own[Math.min(own.length - 1, at + by)]).focus();
  });
}
