// Figures the server built: drawn when they come into sight, again when the theme changes or their page part was renewed.
// A figure that shall keep its zoom while its part is renewed has an id and `hx-preserve`; its data lies beside it.
/* global Plotly */
import { $$ } from "./dom.js";
import { alpha, dragmode } from "./plots.js";

const RGBA = /^rgba\((\d+), ?(\d+), ?(\d+), ?([\d.]+)\)$/;
const CONFIG = { responsive: true, displayModeBar: false, doubleClick: "reset" };
const known = new Map(); // element -> the text of the data it was drawn from; "" before

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hex = (...channels) => `#${channels.map((c) => Number(c).toString(16).padStart(2, "0")).join("").toUpperCase()}`;

// A colour of the palette becomes what its CSS variable is now; any other stays.
export function exchanged(color, palette, look = css) {
  const seen = RGBA.exec(color);
  if (!seen) return color.toUpperCase() in palette ? look(palette[color.toUpperCase()]) : color;
  const [, red, green, blue, opacity] = seen, name = palette[hex(red, green, blue)];
  return name && Number(opacity) > 0 ? alpha(look(name), opacity) : color;
}

// The same tree with the colours exchanged: only under keys that name a colour, since a text may look like one.
function dressed(value, palette, isColor = false) {
  if (typeof value === "string") return isColor ? exchanged(value, palette) : value;
  if (Array.isArray(value)) return value.map((part) => dressed(part, palette, isColor));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, key === "family" ? css("--sans") : dressed(part, palette, isColor || /color/i.test(key))]));
}

function draw(element) {
  const source = document.getElementById(element.dataset.figure);
  if (!source || !window.Plotly) return;
  const { data, layout, palette } = JSON.parse(source.textContent);
  const look = dressed(layout, palette);
  const phone = innerWidth <= 760, other = phone ? "wide" : "narrow"; // notes that say on which screens they are shown
  if (phone && look.template) look.template.layout.xaxis.nticks = 5;
  if (look.annotations) look.annotations = look.annotations.filter((note) => note.name !== other);
  look.dragmode = dragmode(element);
  known.set(element, source.textContent);
  Plotly.react(element, dressed(data, palette), look, CONFIG);
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "240px" });

// Places that are new wait until they are in sight; those whose data is another are drawn again; those that left are forgotten.
function look() {
  for (const element of $$("[data-figure]")) {
    const drawn = known.get(element);
    if (drawn === undefined) { known.set(element, ""); seen.observe(element); continue; }
    if (drawn && drawn !== document.getElementById(element.dataset.figure)?.textContent) draw(element);
  }
  for (const element of known.keys()) {
    if (element.isConnected) continue;
    if (known.get(element)) Plotly.purge(element);
    seen.unobserve(element);
    known.delete(element);
  }
}

addEventListener("joynexus:theme", () => { for (const [element, drawn] of known) if (drawn && element.isConnected) draw(element); });
document.addEventListener("htmx:load", look);
look();
