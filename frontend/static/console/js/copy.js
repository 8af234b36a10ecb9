// Buttons that copy: `data-copy` names the element whose text or value is meant.
import { toast } from "./toast.js";

export function watchCopies() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const source = document.getElementById(button.dataset.copy), text = source.value ?? source.textContent;
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch { // no permission, or no secure context: the text is marked, to be copied by hand
      if (source.select) source.select();
      else getSelection().selectAllChildren(source);
    }
  });
}
