// What a chart's card says in words: how many points, what is not shown, a summary for those who do not see it, and
// buttons that hide and show its lines.
import { $ } from "./dom.js";
import { curvesOf, keyOf, wordsOf } from "./job-charts.js";
import { number } from "./plots.js";

const whole = (n) => n.toLocaleString("en");
const plural = (n, noun) => `${whole(n)} ${noun}${n === 1 ? "" : "s"}`;

function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

// Leaves a card whose curves are all silent as it is.
export function describe(card, chart, store, { view, unit, value = null, unshown = 0, zoomed = false }) {
  const told = chart.curves.flatMap((curve) => curvesOf(store, curve).map((own) => ({ curve, own })));
  if (!told.length) return;
  write($("[data-count]", card), countText(chart, told, view, zoomed));
  write($("[data-unshown]", card), unshown ? ` ${plural(unshown, "drawn value")} at 0 or below cannot be shown on a log axis.` : "");
  if (value !== null) write($("[data-last]", card), value);
  write($("[data-summary]", card), told.map(({ curve, own }) => summary(chart, curve, own, unit)).join(" "));
  keys(card, chart, told, view);
}

// "412 points", or how many of how many are drawn and what smoothing runs over.
function countText(chart, told, view, zoomed) {
  const first = told.filter((one) => one.curve === told[0].curve).map((one) => one.own);
  const drawn = first.reduce((n, c) => n + c.x.length, 0), total = first.reduce((n, c) => n + c.total, 0);
  if (drawn >= total) return plural(total, "point");
  const smoothed = chart.smooth && view.weight > 0 ? "; smoothed over the whole curve" : "";
  return `${whole(drawn)} of ${whole(total)} points, lowest and highest kept${smoothed}${zoomed ? "; more within the zoom" : ""}`;
}

function summary(chart, curve, own, unit) {
  const name = own.attempt > 1 ? `${curve.label}, attempt ${own.attempt}` : curve.label;
  const told = own.y.findLast((v) => v !== null), tail = chart.percent ? " %" : "", shown = (v) => `${number(v * chart.scale)}${tail}`;
  const finite = (column) => column.filter((v) => v !== null), low = Math.min(...finite(own.lo)), high = Math.max(...finite(own.hi));
  const bad = own.special.flatMap((special, i) => (special ? [wordsOf({ special: own.special, steps: own.x, curve: own }, i)] : []));
  const values = told === undefined ? "no finite value" : `last ${shown(told)}, lowest ${shown(low)}, highest ${shown(high)}`;
  const gaps = bad.length ? ` ${bad.slice(0, 3).join(", ")}${bad.length > 3 ? ` and ${plural(bad.length - 3, "more place")}` : ""}.` : "";
  return `${name}: ${plural(own.total, "point")}, ${unit} ${whole(own.start(0))} to ${whole(own.x.at(-1))}, ${values}.${gaps}`;
}

function keys(card, chart, told, view) {
  const group = $("[data-keys]", card), names = told.map(({ curve, own }) => ({ key: `${chart.id} ${keyOf(curve, own)}`, slot: curve.color, text: nameOf(curve, own, told) }));
  if (names.length < 2 || group.childElementCount === names.length && names.every(({ key }, i) => group.children[i].dataset.key === key)) return;
  group.replaceChildren(...names.map(({ key, slot, text }) => {
    const button = document.createElement("button"), sample = document.createElement("span");
    Object.assign(button, { type: "button", className: "key" });
    button.dataset.key = key;
    button.setAttribute("aria-pressed", String(!view.hidden.has(key)));
    sample.className = `swatch r${slot}`;
    button.append(sample, text);
    return button;
  }));
  group.hidden = false;
}

function nameOf(curve, own, told) {
  const alone = told.every((one) => one.own.attempt === own.attempt);
  return alone ? curve.label : `${curve.label}, attempt ${own.attempt}`;
}
