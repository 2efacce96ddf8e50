// One predicted fact after the other, the one from which most is learned first; keys judge.

import { el, empty, failed, say } from "./dom.js";
import { address, judge, ofRun, state } from "./api.js";
import { combobox } from "./combobox.js";
import { chance, entityLink, explain } from "./facts.js";

const KEYS = { a: ["accept", "Accept"], r: ["reject", "Reject"], s: ["unsure", "Don’t know, skip"] };

export function review(main, params) {
  let waiting = [], seen = [], at = 0, busy = false;
  const relation = params.get("relation");
  const place = el("div"), only = combobox({ label: "Only this relation", kind: "relation", value: relation ?? "", placeholder: "all relations", onpick: go });
  function go() { location.hash = address("review", { relation: only.input.value.trim() }); }
  main.append(el("h1", {}, "Review"),
    el("p", { class: "lead" }, "Facts about which the model is least sure come first: your word on them says most. ",
      "Verdicts are kept at once; puda train --verdicts learns from them."),
    el("form", { class: "row", onsubmit: (event) => { event.preventDefault(); go(); } }, only.node, el("button", { class: "quiet" }, "Choose")),
    el("br"), place);

  const fetchMore = async () => {
    const found = await ofRun("/queue", { k: 20, relation, author: state.author });
    const shown = new Set(seen.map((each) => JSON.stringify([each.head, each.relation, each.tail])));
    waiting = found.filter((each) => !shown.has(JSON.stringify([each.head, each.relation, each.tail])));
  };

  async function next() {
    if (at < seen.length) return card(seen[at]);
    if (!waiting.length) await fetchMore();
    const fact = waiting.shift();
    if (!fact) return place.replaceChildren(el("div", { class: "card" }, empty("All judged", "Nothing is left to review. Train again with --verdicts and look once more.")));
    seen.push(fact);
    card(fact);
  }

  function card(fact) {
    const note = el("input", { "aria-label": "Note", placeholder: "A note, if you like", maxlength: 2000 });
    const why = el("div", { class: "why", hidden: true });
    const toggle = el("button", { type: "button", class: "quiet", "aria-expanded": "false", onclick: reason }, "Why? ", el("kbd", {}, "w"));
    function reason() {
      why.hidden = !why.hidden;
      toggle.setAttribute("aria-expanded", String(!why.hidden));
      if (!why.childElementCount) explain(why, fact);
    }
    const buttons = Object.entries(KEYS).map(([key, [verdict, text]]) =>
      el("button", { type: "button", class: verdict, "data-key": key, "aria-keyshortcuts": key, onclick: () => tell(verdict) }, text, el("kbd", {}, key)));

    async function tell(verdict) {
      if (busy) return;
      busy = true;
      try {
        await judge(fact, verdict, note.value.trim());
        fact.said = verdict;
        at += 1;
        say(`Kept: ${verdict}. ${fact.head} ${fact.relation} ${fact.tail}`);
        await next();
      } catch (error) { say(error.message); }
      busy = false;
    }

    place.replaceChildren(el("div", { class: "card" },
      el("p", { class: "muted small" }, `${at + 1}. `, fact.said ? `You said: ${fact.said}. ` : "", "Is this true?"),
      el("p", { class: "fact", tabindex: "-1" }, entityLink(fact.head), el("span", { class: "says" }, fact.relation), entityLink(fact.tail)),
      chance(fact.probability),
      el("div", { class: "keys" }, buttons),
      el("div", { class: "row" }, el("div", { class: "field" }, note), toggle,
        el("button", { type: "button", class: "quiet back", disabled: at === 0, onclick: back }, "Back ", el("kbd", {}, "b"))), why));
    document.onkeydown = (event) => {
      if (event.target.matches("input, select, textarea") || event.ctrlKey || event.altKey || event.metaKey) return;
      const verdict = KEYS[event.key.toLowerCase()]?.[0];
      if (verdict) tell(verdict);
      else if (event.key === "w") reason();
      else if (event.key === "b") back();
    };
  }

  function back() { if (at > 0 && !busy) card(seen[--at]); }

  place.replaceChildren(el("div", { class: "card" }, el("span", { class: "skeleton" }), el("span", { class: "skeleton" })));
  next().catch((error) => place.replaceChildren(el("div", { class: "card" }, failed(error))));
  return () => { document.onkeydown = null; };
}
