// The form of a new job: what htmx does not do. Folds and the chosen language stay, changes are marked, one submission.
import { $, $$ } from "./dom.js";

const form = $("[data-new-job]");
let shownAs = "curl", openFolds = new Set();
