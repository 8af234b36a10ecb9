// Charts that no list foresaw: every other series a job tells gets a card, in groups by what stands before the slash.
// And the search over all of them.
import { $, $$ } from "./dom.js";

const OWN = { unit: "", smooth: true, log: true, percent: false, scale: 1, note: "", limit: null };

export class OtherCharts {
  #root;
  #known;
  #added;

  // `added(element, chart)` is told of every new card's plot.
  constructor(root, charts, added) {
    this.#root = root;
    this.#known = new Set(charts.flatMap((chart) => chart.curves.flatMap((curve) => [curve.series, curve.episodes, ...curve.more])));
    this.#added = added;
  }

  show(names) {
    const fresh = [...names].filter((name) => !this.#known.has(name)).sort();
    for (const name of fresh) this.#card(name);
    if (fresh.length) find(this.#root);
  }

  #card(name) {
    this.#known.add(name);
    const card = $("[data-card-template]", this.#root).content.firstElementChild.cloneNode(true), prefix = name.includes("/") ? name.split("/")[0] : "";
    const chart = { ...OWN, id: `series:${name}`, title: name, curves: [{ series: name, label: name.split("/").at(-1), color: 1, dotted: false, episodes: "", more: [] }] };
    const plot = $("[data-chart]", card), summary = $("[data-summary]", card);
    $("[data-title]", card).textContent = name;
    card.dataset.words = name.toLowerCase();
    plot.dataset.chart = chart.id;
    plot.setAttribute("aria-label", name);
    summary.id = `about-${chart.id}`;
    plot.setAttribute("aria-describedby", summary.id);
    for (const button of $$("[aria-label]", card)) if (button !== plot) button.setAttribute("aria-label", button.getAttribute("aria-label").replace("{title}", name));
    $(".grid", this.#group(prefix)).append(card);
    this.#added(plot, chart);
  }

  #group(prefix) {
    const id = `other:${prefix}`, found = $$("[data-group]", this.#root).find((group) => group.dataset.group === id);
    if (found) return found;
    const group = $("[data-group-template]", this.#root).content.firstElementChild.cloneNode(true);
    group.dataset.group = id;
    $("h3", group).textContent = prefix ? `${prefix}/` : "Other series";
    $("[data-groups]", this.#root).append(group);
    return group;
  }
}

// Cards whose words do not hold everything that is looked for are left out.
export function find(root) {
  const words = $("[data-find]", root).value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  for (const card of $$("[data-card]", root)) card.hidden = !words.every((word) => card.dataset.words.includes(word));
  for (const group of $$("[data-group]", root)) group.hidden = $$("[data-card]", group).every((card) => card.hidden);
  $("[data-none]", root).hidden = $$("[data-card]", root).some((card) => !card.hidden);
}
