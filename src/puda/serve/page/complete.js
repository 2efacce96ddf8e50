// The whole graph's missing facts, looked for behind the scenes.

import { el, count, empty, failed, figure, percent, say, show } from "./dom.js";
import { call, download, ofRun, state } from "./api.js";
import { combobox } from "./combobox.js";
import { entityLink } from "./facts.js";

export function complete(main) {
  const top = el("input", { type: "number", id: "top", min: 1, max: 100000, value: 200 });
  const least = el("input", { type: "number", id: "minimum", min: 0, max: 100, placeholder: "0", disabled: !state.run.calibrated });
  const relation = combobox({ label: "Only this relation", kind: "relation", placeholder: "all relations" });
  const place = el("div");
  let timer;
  main.append(el("h1", {}, "Complete the graph"),
    el("p", { class: "lead" }, "Looks through all pairs that could be facts, relation by relation. It goes on while you do something else."),
    el("form", { class: "card row", onsubmit: async (event) => {
      event.preventDefault();
      relation.close();
      const only = relation.input.value.trim();
      try {
        await ofRun("/jobs", {}, { body: { top: Number(top.value), minimum: least.value ? least.value / 100 : null, relations: only ? [only] : null } });
        refresh();
      } catch (error) { say(error.message); }
    } }, el("div", { class: "field narrow" }, el("label", { for: "top" }, "How many facts"), top),
    el("div", { class: "field narrow" }, el("label", { for: "minimum" }, "At least % probable"), least), relation.node, el("button", {}, "Start")),
    place);

  const cards = new Map();
  async function refresh() {
    clearTimeout(timer);
    try {
      const jobs = await call("/jobs");
      if (!jobs.length) place.replaceChildren(el("div", { class: "card" }, empty("No completion yet", "Start one above.")));
      else {
        if (!cards.size) place.replaceChildren();
        jobs.toReversed().filter((job) => !cards.has(job.id)).forEach((job) => { cards.set(job.id, jobCard()); place.prepend(cards.get(job.id).node); });
        jobs.forEach((job) => cards.get(job.id).update(job));
      }
      if (jobs.some((job) => job.state === "waiting" || job.state === "running")) timer = setTimeout(refresh, 700);
    } catch (error) { place.replaceChildren(failed(error)); }
  }
  refresh();
  return () => clearTimeout(timer);
}

function jobCard() {
  let last;
  const node = el("section", { class: "card" });
  return { node, update(job) {
    if (job.state === last && job.state !== "running") return;
    last = job.state;
    const title = el("h2", {}, `${job.run}: ${job.state}`);
    if (job.state === "done") return results(node, title, job);
    node.replaceChildren(title, job.error ? failed(new Error(job.error)) : "",
      el("progress", { max: job.of || 1, value: job.done, "aria-label": "Relations done" }),
      el("div", { class: "row" }, el("p", { class: "muted small" }, `${job.done} of ${job.of} relations`),
        job.state === "cancelled" || job.error ? null : el("button", { class: "quiet", type: "button", onclick: () => call(`/jobs/${job.id}`, { method: "DELETE" }) }, "Cancel")));
  } };
}

function results(node, title, job) {
  const place = el("div"), save = (format) => el("button", { type: "button", class: "quiet", onclick: () => download(`/jobs/${job.id}/export?format=${format}`, `missing.${format}`) }, `Save as ${format === "tsv" ? "TSV" : "JSON lines"}`);
  node.replaceChildren(title, el("div", { class: "row" }, el("p", { class: "muted" }, `${count(job.facts)} facts`), save("tsv"), save("jsonl")), place);
  show(place, async () => {
    const { facts } = await call(`/jobs/${job.id}/facts`, { params: { k: 25 } });
    if (!facts.length) return empty("Nothing found", "No pair is that probable.");
    return el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["fact", "probability", "score"].map((name) => el("th", {}, name)))),
      el("tbody", {}, facts.map((fact) => el("tr", {}, el("td", {}, entityLink(fact.head), ` ${fact.relation} `, entityLink(fact.tail)),
        el("td", {}, percent(fact.probability)), el("td", {}, figure(fact.score, 2)))))),
    job.facts > facts.length ? el("p", { class: "muted small" }, `and ${count(job.facts - facts.length)} more in the file`) : null);
  });
}
