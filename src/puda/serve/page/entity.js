// An entity: what is known of it, what is like it, what is probably missing.

import { el, count, empty, figure, show } from "./dom.js";
import { address, ofRun } from "./api.js";
import { combobox } from "./combobox.js";
import { answerList, entityLink } from "./facts.js";
import { drawNeighbours } from "./drawing.js";

export function entity(main, params) {
  const label = params.get("entity");
  const search = combobox({ label: "Entity", value: label ?? "", placeholder: "type a name", onpick: go });
  function go() { search.close(); location.hash = address("entity", { entity: search.input.value.trim() }); }
  main.append(el("h1", {}, label ?? "Look something up"),
    el("form", { class: "card row", onsubmit: (event) => { event.preventDefault(); go(); } }, search.node, el("button", { type: "submit" }, "Open")));
  if (!label) {
    main.append(empty("Nothing is open", "Type a few letters of a name: small mistakes are forgiven."));
    return;
  }
  const place = el("div");
  main.append(place);
  show(place, async () => {
    const found = await ofRun("/entity", { entity: label });
    const around = el("div"), missing = el("div");
    const page = [
      el("section", { class: "card" }, el("h2", {}, "Around it"), around),
      el("div", { class: "columns" },
        el("section", { class: "card" }, el("h2", {}, "Probably missing"), missing),
        el("div", {},
          el("section", { class: "card" }, el("h2", {}, `Known: ${count(found.num_facts)} facts`), known(found, label)),
          el("section", { class: "card" }, el("h2", {}, "Most like it"),
            el("ul", { class: "chips" }, found.similar.map((each) => el("li", {},
              el("a", { href: address("entity", { entity: each.entity }), title: `similarity ${figure(each.similarity, 2)}` }, each.entity))))))),
    ];
    show(missing, async () => {
      const [predicted, said] = await Promise.all([
        ofRun("/entity/predictions", { entity: found.entity, k: 12 }),
        Promise.all([ofRun("/verdicts", { head: found.entity }), ofRun("/verdicts", { tail: found.entity })])]);
      predicted.forEach((each, i) => { each.rank = i + 1; });
      around.replaceChildren(drawNeighbours(found.entity, found.facts, predicted.slice(0, 5), around.clientWidth));
      return predicted.length ? answerList(predicted, said.flatMap((each) => each.verdicts))
        : empty("Nothing", "No fact of it seems to be missing.");
    });
    around.append(el("span", { class: "skeleton" }));
    return page;
  });
}

function known(found) {
  if (!found.facts.length) return empty("Nothing is known", "It occurs in no fact.");
  const groups = new Map();
  for (const fact of found.facts) {
    const forward = fact.head === found.entity, title = forward ? `${fact.relation} …` : `… ${fact.relation} it`;
    groups.set(title, [...(groups.get(title) ?? []), forward ? fact.tail : fact.head]);
  }
  const left = found.num_facts - found.facts.length;
  return el("div", {}, el("dl", { class: "facts" }, [...groups].map(([title, others]) => [
    el("dt", {}, title), el("dd", {}, others.map((other, i) => [i ? ", " : "", entityLink(other)]))])),
  left ? el("p", { class: "muted small" }, `and ${count(left)} more`) : null);
}
