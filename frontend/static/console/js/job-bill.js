// The bill of a job, live: the total and the lines it is made of come in one frame, so they always add up.
import { $, $$, setText } from "./dom.js";

export function showCost(cost, words) {
  setText("[data-cost]", money(cost));
  const list = $("[data-lines]");
  for (const old of $$("[data-line]", list)) old.remove();
  list.prepend(...cost.lines.flatMap((line) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.dataset.line = dd.dataset.line = "";
    dt.textContent = `${words.meters[line.meter] ?? line.meter}, ${quantity(line.meter, line.quantity)}`;
    dt.append(...line.free.map((part) => note(`${quantity(line.meter, part.quantity)} free: ${words.free[part.reason] ?? part.reason.replaceAll("_", " ")}`)));
    dd.textContent = money({ amount: line.amount, currency: cost.currency });
    return [dt, dd];
  }));
}

function note(text) {
  const span = document.createElement("span");
  span.className = "sub";
  span.textContent = text;
  return span;
}

function quantity(meter, count) {
  if (!meter.endsWith("compute_us")) return count.toLocaleString("en");
  return `${(count / 1e6).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 })}\u00a0s`;
}

function money({ amount, currency }) {
  const value = Number(amount);
  const digits = value > 0 && value < 0.01 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return new Intl.NumberFormat("en", { style: "currency", currency, ...digits }).format(value);
}
