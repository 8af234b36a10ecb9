// What happened, for four seconds. Never an error: those stay on the page.
const SHOWN_MS = 4000;

function leave(toast) {
  setTimeout(() => toast.remove(), SHOWN_MS);
}

export function toast(text) {
  const element = Object.assign(document.createElement("div"), { className: "toast", textContent: text });
  document.querySelector(".toasts").append(element);
  leave(element);
}

export function showToasts() {
  document.querySelectorAll(".toasts > .toast").forEach(leave);
  document.body.addEventListener("joynexus:toast", (event) => event.detail.texts.forEach(toast));
}
