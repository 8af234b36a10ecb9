// The two look-ups, and the data a page starts from.
export const $ = (selector, root = document) => root.querySelector(selector);
export const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

export function pageData(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

export function setText(selector, text, root = document) {
  const element = $(selector, root);
  if (element && element.textContent !== text) element.textContent = text;
}
