// The answers of two runs to the same question, and the choice of the other run.

import { el, count, empty, show } from "./dom.js";
import { call, state } from "./api.js";
import { chance } from "./facts.js";

const FIRST = 10, DEEP = 100;  // answers that are compared, and how deep the other run is searched for them

// A list of the other runs that are served; `take` hears the name of the one that is chosen.
export function besideChoice(other, take) {
  const rivals = state.runs.filter((run) => run.name !== state.run.name);
  const choose = el("select", { id: "with", onchange: () => take(choose.value) },
    el("option", { value: "" }, rivals.length ? "nothing" : "no other run is served"),
    rivals.map((run) => el("option", { value: run.name, selected: run.name === other }, run.name)));
  return el("div", { class: "check" }, el("label", { for: "with" }, "beside"), choose);
}

// A row for each of the first answers of either; `open` is the part of the fact that is asked for.
export function compare(place, names, open, asked) {
  show(place, async () => {
    const found = await Promise.all(names.map((name) => predict(name, asked)));
    const ranked = found.map((each) => new Map(each.answers.map((answer) => [answer[open], answer])));
    const first = found.map((each) => each.answers.filter((answer) => answer.rank <= FIRST).map((answer) => answer[open]));
    const best = (label) => Math.min(...ranked.map((run) => run.get(label)?.rank ?? Infinity));
    const labels = [...new Set(first.flat())].sort((a, b) => best(a) - best(b));
    if (!labels.length) return el("div", { class: "card" }, empty("No answer", "Neither run has one that is asked for."));
    const shared = first[0].filter((label) => first[1].includes(label)).length;
    const cell = (label, i) => {
      const answer = ranked[i].get(label);
      if (!answer) return el("td", { class: "muted" }, found[i].more ? `behind ${count(DEEP)}` : "–");
      return el("td", {}, el("div", { class: "place" }, el("span", { class: "rank" }, count(answer.rank)), chance(answer.probability)));
    };
    return el("div", { class: "card" }, el("h2", {}, names.join(" beside ")),
      el("p", { class: "muted small" }, `Places and probabilities; ${shared} of the first ${FIRST} are the same.`),
      el("div", { class: "scroll" }, el("table", { class: "beside" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "answer"), names.map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, labels.map((label) => el("tr", {}, el("td", {}, label), names.map((_, i) => cell(label, i))))))));
  });
}

async function predict(name, asked) {
  try {
    return await call(`/runs/${encodeURIComponent(name)}/predict`, { params: { ...asked, k: DEEP } });
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
}
