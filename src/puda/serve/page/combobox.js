// A text field that suggests labels while one types; arrows choose, Enter takes, Escape closes.

import { el, count } from "./dom.js";
import { ofRun } from "./api.js";

let number = 0;

export function combobox({ label, kind = "entity", value = "", placeholder = "", onpick = () => {} }) {
  const id = `suggest-${++number}`;
  let found = [], at = -1, waiting, request;
  const list = el("ul", { class: "options", role: "listbox", id: `${id}-list`, "aria-label": label, hidden: true });
  const input = el("input", {
    id, placeholder, value, autocomplete: "off", spellcheck: "false", maxlength: 4000, role: "combobox",
    "aria-expanded": "false", "aria-controls": list.id, "aria-autocomplete": "list",
    oninput: () => {
      at = -1;  // what is listed fits what was typed before
      mark();
      clearTimeout(waiting);
      waiting = setTimeout(suggest, 90);
    },
    onfocus: () => { if (!input.value) suggest(); },
    onblur: () => setTimeout(close, 120),
    onkeydown: press,
  });

  async function suggest() {
    request?.abort();
    request = new AbortController();
    try {
      found = await ofRun("/search", { text: input.value.slice(0, 200), kind }, { signal: request.signal });
    } catch {
      return;  // the question itself will say what is wrong
    }
    if (document.activeElement !== input) return;
    at = input.value && found.length ? 0 : -1;
    list.replaceChildren(...found.map((each, i) =>
      el("li", { role: "option", id: `${id}-${i}`, onmousedown: (event) => { event.preventDefault(); take(i); } },
        el("span", {}, each.label), el("span", { class: "muted" }, `${count(each.facts)} facts`))));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(found.length > 0));
    mark();
  }

  function mark() {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", `${id}-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  function press(event) {
    if (event.key === "Escape") return close();
    if (event.key === "Enter" && !list.hidden && at >= 0) { event.preventDefault(); return take(at); }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    if (list.hidden) return suggest();
    at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
    mark();
  }

  function take(i) { input.value = found[i].label; close(); onpick(found[i].label); }

  function close() {
    clearTimeout(waiting);
    request?.abort();
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  }

  return { input, node: el("div", { class: "field" }, el("label", { for: id }, label), input, list), close };
}
