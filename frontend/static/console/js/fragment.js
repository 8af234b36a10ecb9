// A part of a page that the server renders anew: filters come from its form, an answer that was overtaken is dropped.
import { showTimes } from "./times.js";

export class Fragment {
  #asked = 0;

  constructor(url, body, { onLoad }) {
    Object.assign(this, { url, body, onLoad });
  }

  // `more`: what the form does not hold, such as the page. The answer's children are given to `onLoad`.
  async load(more = {}) {
    const asked = ++this.#asked, query = this.query(more);
    const answer = await fetch(`${this.url}?${query}`, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(`${this.url}: ${answer.status}`);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    if (asked !== this.#asked) return;
    showTimes(fresh);
    this.onLoad(fresh);
  }

  query(more = {}) {
    const form = [...this.body.querySelectorAll("form")].find((own) => own.method === "get"), query = new URLSearchParams(form ? new FormData(form) : undefined);
    for (const [name, value] of Object.entries(more)) query.set(name, value);
    for (const [name, value] of [...query]) if (value === "") query.delete(name);
    return query;
  }
}

// Changes what is in `body` and gives the focus back to the control of the same name and value.
export function keepingFocus(body, change) {
  const held = document.activeElement;
  const at = body.contains(held) && held.name ? { name: held.name, value: held.value, radio: held.type === "radio", caret: held.selectionStart } : null;
  change();
  if (!at || body.contains(held)) return;
  const again = [...body.querySelectorAll(`[name="${CSS.escape(at.name)}"]`)].find((c) => !at.radio || c.value === at.value);
  again?.focus();
  if (again?.type === "text" && at.caret !== null) again.setSelectionRange(at.caret, at.caret);
}
