// Elements. Labels of a graph are anyone's text: they enter the page as text nodes and in no other way.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null));
  return node;
}

let silence;

export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => { place.textContent = ""; }, 3500);
}

export const loading = () =>
  el("div", { class: "loading", "aria-busy": "true", "aria-label": "Loading" },
    el("span", { class: "skeleton" }), el("span", { class: "skeleton" }), el("span", { class: "skeleton" }));

export const empty = (title, hint) => el("p", { class: "state" }, el("strong", {}, title), hint);

export const failed = (error) =>
  el("p", { class: "state error", role: "alert" }, el("strong", {}, "That did not work"), error.message);

// Show a skeleton until the task has made its nodes, and what went wrong where it has not.
export async function show(place, task) {
  place.replaceChildren(loading());
  try {
    place.replaceChildren(...[await task()].flat(Infinity).filter((node) => node != null));
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(failed(error));
  }
}

export const percent = (p) =>
  p == null ? "–" : p > 0.995 ? "> 99 %" : p < 0.01 ? "< 1 %" : `${Math.round(100 * p)} %`;

export const figure = (x, digits = 3) => (x == null ? "–" : x.toFixed(digits));

export const count = (n) => n.toLocaleString("en");
