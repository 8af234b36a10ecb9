// Films and episodes of a job's page: each card comes to life when it is on the page, also when it came with a part.
import { $$ } from "./dom.js";
import { showEpisodes } from "./episodes.js";
import { Gallery } from "./gallery.js";

function look() {
  for (const card of $$("[data-videos]")) new Gallery(card);
  for (const card of $$("[data-episodes]")) showEpisodes(card);
}

document.addEventListener("htmx:load", look);
look();
