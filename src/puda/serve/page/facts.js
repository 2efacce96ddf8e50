// A fact on the page: its probability, people's verdicts, and why it is plausible.

import { el, percent, figure, count, say, show } from "./dom.js";
import { address, judge, ofRun, state } from "./api.js";
import { drawPaths } from "./drawing.js";

const SIGNS = { accept: ["✓", "Accept: it is true"], reject: ["✗", "Reject: it is not true"], unsure: ["?", "I do not know"] };

export const entityLink = (label) => el("a", { href: address("entity", { entity: label }) }, label);

export const inWords = (fact) => `${fact.head} ${fact.relation} ${fact.tail}`;

export function chance(probability) {
  if (probability == null) return el("div", { class: "chance muted small" }, "not calibrated");
  const fill = el("div", { class: "fill" });
  fill.style.width = `${Math.max(1, 100 * probability)}%`;
  return el("div", { class: "chance", title: `probability ${figure(probability)}` }, el("div", { class: "track" }, fill),
    el("span", { class: "number" }, percent(probability)));
}

// Buttons to accept, reject or leave open; `said` are the verdicts there are.
export function judging(fact, said, onsaid = () => {}) {
  const others = el("div", { class: "others" });
  const buttons = Object.entries(SIGNS).map(([verdict, [sign, title]]) =>
    el("button", { type: "button", class: verdict, title, "aria-label": `${title}: ${inWords(fact)}`, onclick: () => tell(verdict) }, sign));

  async function tell(verdict, note = "") {
    try {
      const kept = await judge(fact, verdict, note);
      said = [...said.filter((each) => each.author !== kept.author), kept];
      paint();
      say(`Kept: ${verdict}. ${inWords(fact)}`);
      onsaid(kept);
    } catch (error) { say(error.message); }
  }

  function paint() {
    const agreed = fact.agreement == null ? [] : [`${fact.agreement} of ${fact.members} models agree`];
    const own = said.find((each) => each.author === state.author);
    Object.keys(SIGNS).forEach((verdict, i) => buttons[i].setAttribute("aria-pressed", String(own?.verdict === verdict)));
    others.textContent = [...agreed, ...said.map((each) =>
      `${each.author || "someone"}: ${each.verdict}${each.note ? `, “${each.note}”` : ""}`)].join(" · ");
  }

  paint();
  return { node: el("div", { class: "judge", role: "group", "aria-label": "Verdict" }, buttons), others, tell };
}

// A list of predicted facts; `part` is what each of them answers, null: the whole fact.
export function answerList(answers, said, part = null) {
  return el("ol", { class: "answers" }, answers.map((answer) => {
    const own = said.filter((each) => each.head === answer.head && each.relation === answer.relation && each.tail === answer.tail);
    const verdict = judging(answer, own);
    const panel = el("div", { class: "why", hidden: true });
    const open = el("button", { type: "button", class: "open", "aria-expanded": "false", title: "Why?", onclick: () => {
      panel.hidden = !panel.hidden;
      open.setAttribute("aria-expanded", String(!panel.hidden));
      if (!panel.childElementCount) explain(panel, answer, verdict);
    } }, part ? answer[part] : inWords(answer));
    const mark = answer.known ? el("span", { class: "mark" }, "known") : el("span", { class: "mark new" }, "new");
    return el("li", {}, el("div", { class: "answer" }, el("span", { class: "rank" }, answer.rank), open,
      chance(answer.probability), mark, verdict.node, verdict.others), panel);
  }));
}

export function explain(place, fact, verdict = null) {
  return show(place, async () => {
    const why = await ofRun("/explain", { head: fact.head, relation: fact.relation, tail: fact.tail });
    const nodes = [
      el("p", { class: "small muted" },
        why.split ? `In the graph (${why.split}). ` : "Not in the graph. ",
        `As an answer to “${fact.head} ${fact.relation} ?” it stands ${place_(why.tail)}, to “? ${fact.relation} ${fact.tail}” ${place_(why.head)}. `,
        "See ", entityLink(fact.head), fact.head === fact.tail ? null : [" and ", entityLink(fact.tail)], "."),
    ];
    if (why.reasons.length) nodes.push(drawPaths(fact, why.reasons.map((reason) => reason.paths[0]), place.clientWidth - 24));
    nodes.push(
      part("Rules that lead to it", why.reasons.map((reason) =>
        [`${reason.rule}: right in ${percent(reason.confidence)} of ${count(reason.cases)} ${reason.cases === 1 ? "case" : "cases"}`])),
      part("Known facts like it", why.analogues.map((each) => [inWords(each.fact), el("span", { class: "muted" }, ` · similarity ${figure(each.similarity, 2)}`)])),
      part("What it was learned from", why.influences.map((each) => [inWords(each.fact)])));
    if (verdict) nodes.push(noting(verdict));
    return nodes;
  });
}

const place_ = (standing) => `${ordinal(standing.rank)} of ${count(standing.candidates)}`;

function ordinal(rank) {
  const n = Math.round(rank), ending = n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return `${count(n)}${ending}`;
}

const part = (title, items) => el("section", {}, el("h3", {}, title),
  items.length ? el("ul", {}, items.map((item) => el("li", {}, item))) : el("p", { class: "muted small" }, "None was found."));

function noting(verdict) {
  const note = el("input", { placeholder: "A note with your verdict", "aria-label": "Note", maxlength: 2000 });
  const keep = (said) => el("button", { type: "button", class: "quiet", onclick: () => verdict.tell(said, note.value) }, said);
  return el("div", { class: "note" }, note, keep("accept"), keep("reject"));
}
