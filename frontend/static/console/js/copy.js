// Texts to take along. `data-copy` names the element whose text or value is meant, or what contains its `pre`;
// `data-show` the one of several to show.
import { $, $$ } from "./dom.js";
import { toast } from "./toast.js";

async function copy(button) {
  const named = document.getElementById(button.dataset.copy), source = $("pre", named) ?? named;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
    toast("Copied");
  } catch { // refused, or not offered outside of TLS: marked, so that Ctrl+C takes it
    if (source.select) source.select();
    else getSelection().selectAllChildren(source);
    source.focus();
  }
}

function show(button) {
  for (const own of $$("[data-show]", button.parentElement)) {
    own.setAttribute("aria-pressed", String(own === button));
    document.getElementById(own.dataset.show).hidden = own !== button;
  }
}

export function watchCopies() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-show]");
    if (button?.dataset.copy) copy(button);
    else if (button) show(button);
  });
}
