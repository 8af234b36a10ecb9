// How a person looks at the charts of one kind of job: kept in this browser, and the same for the next job of the kind.

const key = (kind) => `joynexus:charts:${kind}`;

// `axes`: what x may be. What was stored by an older page and means nothing now is left out.
export function settings(kind, axes) {
  const told = stored(kind);
  return {
    weight: typeof told.weight === "number" && told.weight >= 0 && told.weight < 1 ? told.weight : 0.6,
    log: told.log === true,
    x: axes.includes(told.x) ? told.x : "",
    hidden: new Set(Array.isArray(told.hidden) ? told.hidden.filter((name) => typeof name === "string") : []),
  };
}

export function remember(kind, view) {
  try { localStorage.setItem(key(kind), JSON.stringify({ ...view, hidden: [...view.hidden] })); } catch { /* storage refused: for this page only */ }
}

function stored(kind) {
  try { return JSON.parse(localStorage.getItem(key(kind))) ?? {}; } catch { return {}; }
}
