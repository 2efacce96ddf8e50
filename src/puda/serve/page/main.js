// The frame: which page is shown, for which run, in which colours.

import { el, failed, loading } from "./dom.js";
import { address, call, keepToken, state } from "./api.js";
import { ask } from "./ask.js";
import { complete } from "./complete.js";
import { entity } from "./entity.js";
import { metrics } from "./metrics.js";
import { review } from "./review.js";
import { verdicts } from "./verdicts.js";

const PAGES = { ask: ["Ask", ask], entity: ["Look up", entity], review: ["Review", review], metrics: ["Metrics", metrics], complete: ["Complete", complete], verdicts: ["Verdicts", verdicts] };
const main = document.getElementById("main"), nav = document.getElementById("nav");
const choice = document.getElementById("run"), author = document.getElementById("author"), theme = document.getElementById("theme");
let leave = null;

function dark() { return document.documentElement.dataset.theme === "dark"; }

function paint(name) {
  document.documentElement.dataset.theme = name;
  theme.textContent = dark() ? "☀" : "☾";
}

const system = matchMedia("(prefers-color-scheme: dark)");
const preferred = () => localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
paint(preferred());
system.addEventListener("change", () => paint(preferred()));
theme.addEventListener("click", () => { localStorage.setItem("theme", dark() ? "light" : "dark"); paint(preferred()); });

state.author = author.value = localStorage.getItem("author") ?? "";
author.addEventListener("change", () => { state.author = author.value.trim(); localStorage.setItem("author", state.author); });

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const params = new URLSearchParams(query), [title, page] = PAGES[path] ?? PAGES.ask;
  state.run = state.runs.find((run) => run.name === params.get("run")) ?? state.run ?? state.runs[0];
  choice.value = state.run.name;
  nav.replaceChildren(...Object.entries(PAGES).map(([name, [text, view]]) =>
    el("a", { href: address(name), "aria-current": view === page ? "page" : null }, text)));
  leave?.();
  main.replaceChildren();
  document.title = `${title} · ${state.run.name} · puda`;
  scrollTo(0, 0);
  leave = page(main, params) ?? null;
}

choice.addEventListener("change", () => {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?"), params = new URLSearchParams(query);
  params.set("run", choice.value);
  params.delete("with");
  location.hash = `#/${path || "ask"}?${params}`;
});

function askToken(wrong) {
  const field = el("input", { type: "password", id: "token", autocomplete: "off" });
  main.replaceChildren(el("h1", {}, "Who is there?"), el("p", { class: "lead" }, "This puda asks for the token that it was started with."),
    wrong ? failed(new Error("That is not the token.")) : "",
    el("form", { class: "card row", onsubmit: (event) => { event.preventDefault(); keepToken(field.value.trim()); begin(true); } },
      el("div", { class: "field" }, el("label", { for: "token" }, "Token"), field), el("button", {}, "Enter")));
  field.focus();
}

async function begin(again = false) {
  main.replaceChildren(loading());
  try {
    state.runs = await call("/runs");
  } catch (error) {
    return error.status === 401 ? askToken(again) : main.replaceChildren(failed(error));
  }
  choice.replaceChildren(...state.runs.map((run) => el("option", { value: run.name }, run.name)));
  window.onhashchange = route;
  route();
}

const given = location.hash.match(/^#token=(.+)$/);
if (given) {
  keepToken(decodeURIComponent(given[1]));
  history.replaceState(null, "", "/");  // out of sight and of the history
}
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
begin();
