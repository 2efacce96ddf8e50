// A question in words: two parts of a fact are given, the third is asked for.

import { el, empty, count, show } from "./dom.js";
import { address, ofRun, state } from "./api.js";
import { combobox } from "./combobox.js";
import { besideChoice, compare } from "./compare.js";
import { answerList, entityLink } from "./facts.js";

const PARTS = ["head", "relation", "tail"];
const PAGE = 10;

export function ask(main, params) {
  const given = Object.fromEntries(PARTS.map((part) => [part, params.get(part) ?? ""]));
  const fields = Object.fromEntries(PARTS.map((part) => [part, combobox({
    label: { head: "who or what", relation: "is how related", tail: "to whom or what" }[part],
    kind: part === "relation" ? "relation" : "entity", value: given[part], placeholder: "?",
    onpick: () => { if (filled().length === 2) go(); else fields[PARTS.find((each) => !fields[each].input.value)]?.input.focus(); },
  })]));
  const known = el("input", { type: "checkbox", id: "known", checked: params.get("known") === "1" });
  const least = el("input", { type: "number", id: "least", min: 0, max: 100, step: 1, value: params.get("least") ?? "", placeholder: "0" });
  const filled = () => PARTS.filter((part) => fields[part].input.value.trim());
  const go = () => {
    PARTS.forEach((part) => fields[part].close());
    const asked = Object.fromEntries(PARTS.map((part) => [part, fields[part].input.value.trim()]));
    location.hash = address("ask", { ...asked, known: known.checked ? 1 : "", least: least.value, with: other });
  };
  let other = params.get("with");
  const beside = state.runs.length > 1 ? besideChoice(other, (name) => { other = name; if (filled().length === 2) go(); }) : null;
  const compared = el("section", { "aria-label": "Two runs" }), results = el("section", { "aria-label": "Answers" });
  const form = el("form", { class: "card", onsubmit: (event) => { event.preventDefault(); go(); } },
    el("div", { class: "row" }, PARTS.map((part) => fields[part].node)),
    el("div", { class: "row" },
      el("div", { class: "check" }, known, el("label", { for: "known" }, "known facts too")),
      el("div", { class: "check" }, el("label", { for: "least" }, "at least"), least, "% probable"),
      beside,
      el("button", { type: "submit", class: "ask" }, "Ask")));
  main.append(el("h1", {}, "What is missing?"),
    el("p", { class: "lead" }, "Fill in two of the three; the empty one is predicted."), form, compared, results);

  const asked = PARTS.filter((part) => given[part]);
  if (asked.length === 2) answers(results, compared, given, params);
  else if (asked.length) results.append(empty("One more part, please", "A question has two known parts and one open."));
  else start(results);
}

// Questions that the run itself can ask, for who does not know its entities yet.
function start(results) {
  show(results, async () => {
    const { name, entities, relations, facts, calibrated } = state.run;
    const size = `${name} knows ${count(facts)} facts of ${count(entities)} entities and ${count(relations)} relations.`;
    const found = calibrated ? await ofRun("/queue", { k: 6, author: state.author }) : [];
    return el("div", { class: "card" }, el("h2", {}, "For example"), el("p", { class: "muted" }, size),
      el("ul", { class: "chips" }, found.map((each) => el("li", {},
        el("a", { href: address("ask", { head: each.head, relation: each.relation }) }, `${each.head} ${each.relation} ?`)))));
  });
}

function answers(results, compared, given, params) {
  const open = PARTS.find((part) => !given[part]), least = params.get("least");
  const asked = Object.fromEntries(PARTS.filter((part) => part !== open).map((part) => [part, given[part]]));
  const wanted = { ...asked, include_known: params.get("known") === "1", minimum: least ? least / 100 : null };
  const page = (offset) => ofRun("/predict", { ...wanted, k: PAGE, offset });
  if (params.get("with")) compare(compared, [state.run.name, params.get("with")], open, wanted);
  show(results, async () => {
    const [first, said] = await Promise.all([page(0), ofRun("/verdicts", asked)]);
    const question = el("h2", {}, PARTS.map((part) =>
      [part === open ? "?" : part === "relation" ? first[part] : entityLink(first[part]), " "]));
    const lists = el("div", {}, answerList(first.answers, said.verdicts, open));
    const more = el("button", { type: "button", class: "quiet", hidden: !first.more, onclick: async () => {
      more.disabled = true;
      const next = await page(offset += PAGE);
      lists.append(answerList(next.answers, said.verdicts, open));
      more.hidden = !next.more;
      more.disabled = false;
    } }, "More answers");
    let offset = 0;
    const fresh = first.answers.filter((each) => !each.known && each.probability != null);
    const expected = fresh.reduce((sum, each) => sum + each.probability, 0);
    const promise = first.promise && `In 9 of 10 questions like this one, the answer is among the first ${count(Math.ceil(first.promise))} that are new.`;
    const notes = el("p", { class: "muted small" },
      fresh.length ? `Of the ${fresh.length} new ones, about ${expected.toFixed(1)} should be true. ` : "", promise || "");
    if (!first.answers.length && !first.more)
      return el("div", { class: "card" }, question, empty("No answer", least ? "None is that probable: lower the bound." : "All that could be is known already."));
    return el("div", { class: "card" }, question, notes, lists, more);
  });
}
