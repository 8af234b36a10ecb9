// One chart over the whole screen, and its values as a table.
/* global Plotly */
import { $ } from "./dom.js";
import { curvesOf, namesOf } from "./job-charts.js";
import { number } from "./plots.js";

const ROWS = 500; // of each curve, the newest; every point there is comes as CSV

// The card itself moves into the dialog and back, so zoom and hidden lines stay what they are.
export function fullScreen(dialog, card, changed) {
  const mark = document.createComment("card"), plot = $("[data-chart]", card);
  card.replaceWith(mark);
  dialog.setAttribute("aria-label", $("h4", card).textContent.trim());
  $("[data-stage]", dialog).append(card);
  dialog.showModal();
  const fit = () => { if (plot.data) Plotly.Plots.resize(plot); changed(); };
  fit();
  dialog.addEventListener("close", () => { mark.replaceWith(card); fit(); $("[data-full]", card).focus(); }, { once: true });
}

export function showData(dialog, chart, store, { id, unit }) {
  $("h2", dialog).textContent = `${chart.title}, ${chart.unit}`;
  $("a[download]", dialog).href = csvOf(id, chart);
  const head = [unit, "Time, UTC", "Curve", "Value", "Lowest", "Highest"];
  const rows = chart.curves.flatMap((curve) => curvesOf(store, curve).flatMap((own) => rowsOf(chart, curve, own)));
  $("thead tr", dialog).replaceChildren(...head.map((text, i) => cell("th", text, i === 0 || i > 2)));
  $("tbody", dialog).replaceChildren(...rows.map((row) => {
    const tr = document.createElement("tr");
    tr.append(...row.map((text, i) => cell("td", text, i === 0 || i > 2)));
    return tr;
  }));
  dialog.showModal();
}

export const csvOf = (id, chart) => `/api/v1/jobs/${id}/metrics?format=csv&series=${encodeURIComponent(namesOf(chart).join(","))}`;

function cell(tag, text, numeric) {
  const element = document.createElement(tag);
  element.textContent = text;
  if (numeric) element.className = "num";
  if (tag === "th") element.scope = "col";
  return element;
}

function rowsOf(chart, curve, own) {
  const name = own.attempt > 1 ? `${curve.label}, attempt ${own.attempt}` : curve.label, shown = (v) => (v === null ? "–" : number(v * chart.scale));
  const rows = own.x.map((step, i) => [
    step.toLocaleString("en"), own.time[i] ? new Date(own.time[i] * 1000).toISOString().slice(0, 19).replace("T", " ") : "–", name,
    own.y[i] === null ? own.special[i] ?? "–" : shown(own.y[i]), shown(own.lo[i]), shown(own.hi[i]),
  ]);
  return rows.slice(-ROWS).reverse();
}
