// What people have said, and how to take it along.

import { el, count, empty, show } from "./dom.js";
import { download, ofRun, state } from "./api.js";
import { entityLink } from "./facts.js";

export function verdicts(main) {
  const place = el("div"), path = `/runs/${encodeURIComponent(state.run.name)}/verdicts/export`;
  const save = (format, name) => el("button", { type: "button", class: "quiet", onclick: () => download(`${path}?format=${format}`, `verdicts.${format}`) }, name);
  main.append(el("h1", {}, "Verdicts"),
    el("p", { class: "lead" }, `What was said of facts of ${state.run.graph}: the last word of each author. `,
      "puda train --verdicts FILE makes accepted facts known and rejected ones true negatives; the majority decides."),
    el("div", { class: "row" }, save("tsv", "Save as TSV"), save("jsonl", "Save as JSON lines")), el("br"), place);
  show(place, async () => {
    const found = await ofRun("/verdicts", { k: 100 });
    if (!found.total) return el("div", { class: "card" }, empty("No verdict yet", "Judge answers on the Ask page, or work through the review queue."));
    return el("div", { class: "card" }, el("p", { class: "muted" }, found.total > 100 ? `The latest 100 of ${count(found.total)}.` : `${count(found.total)} in all.`),
      el("div", { class: "scroll" }, el("table", {},
        el("thead", {}, el("tr", {}, ["fact", "verdict", "author", "note", "when"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, found.verdicts.map((each) => el("tr", {},
          el("td", {}, entityLink(each.head), ` ${each.relation} `, entityLink(each.tail)), el("td", {}, each.verdict),
          el("td", { class: "words" }, each.author || "–"), el("td", { class: "words" }, each.note),
          el("td", { class: "muted" }, each.time.slice(0, 16).replace("T", " "))))))));
  });
}
