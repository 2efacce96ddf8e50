// All that was measured of a run, beside another one if wanted.

import { el, count, empty, figure, show } from "./dom.js";
import { address, call, state } from "./api.js";
import { learningCurves, reliabilityDiagram, stroke } from "./charts.js";
import { besideChoice } from "./compare.js";

const SIDES = ["tail", "head", "both"];
const FIGURES = [["mrr", "MRR"], ["hits@1", "Hits@1"], ["hits@3", "Hits@3"], ["hits@10", "Hits@10"], ["amri", "AMRI"], ["mr", "Mean rank"]];

export function metrics(main, params) {
  let side = params.get("side") ?? "both", split = params.get("split") ?? "test";
  const other = params.get("with"), place = el("div");
  main.append(el("h1", {}, other ? `${state.run.name} beside ${other}` : `How good is ${state.run.name}?`),
    el("p", { class: "lead" }, "Filtered ranks over all entities, ties at their mean. Tail, head and both sides are always told apart."),
    place);
  const beside = besideChoice(other, (name) => { location.hash = address("metrics", { side, split, with: name }); });
  show(place, async () => {
    const names = [state.run.name, ...(other ? [other] : [])];
    const found = await Promise.all(names.map((name) => call(`/runs/${encodeURIComponent(name)}/metrics`)));
    if (!found[0].metrics[split]) split = Object.keys(found[0].metrics)[0];
    const page = el("div");
    paint();
    return page;

    function paint() {
      const reports = found.map((each) => each.metrics[split]);
      const pick = (options, now, take) => el("div", { class: "switch", role: "group" }, options.map((option) =>
        el("button", { type: "button", "aria-pressed": String(option === now), onclick: () => { take(option); paint(); } }, option)));
      if (!reports[0]) {
        page.replaceChildren(el("div", { class: "card" }, empty("Not measured yet", "puda resume RUN measures a run that is finished; then serve it again.")), beside, pictures());
        return;
      }
      page.replaceChildren(
        el("div", { class: "row bar" }, pick(SIDES, side, (next) => { side = next; }), pick(Object.keys(found[0].metrics), split, (next) => { split = next; }), beside),
        ...reports.map((report, i) => report && el("section", { class: "card" }, el("h2", {}, `${names[i]}, ${split}, ${side}`), summary(report[side], reports[0][side]))).filter(Boolean),
        pictures(), baselines(reports[0]), relations(reports, names));
    }

    function pictures() {
      const reliable = el("div"), half = Math.min(main.clientWidth - 32, 1056), width = half > 700 ? half / 2 - 60 : half - 40;
      const curves = found[0].curve.length ? curve(found, names, width) : empty("No curve", "The run was not validated while it was trained.");
      const drawing = el("div", { class: "half" }, el("section", { class: "card" }, el("h2", {}, "Learning curve"), curves),
        el("section", { class: "card" }, el("h2", {}, "Reliability"), reliable));
      show(reliable, async () => {
        const all = await Promise.all(names.map((name) => call(`/runs/${encodeURIComponent(name)}/reliability`)));
        return [reliabilityDiagram(all.map((each, i) => ({ bins: each.bins, kind: i ? "second" : "first" })), width),
          el("p", { class: "muted small" }, all.map((each, i) => `${names[i]}: expected calibration error ${figure(each.error)}, Brier score ${figure(each.brier)}. `),
            "Of candidates for test questions; true facts that the graph lacks count as false, so real frequencies are higher.")];
      });
      return drawing;
    }
  });
}

function curve(found, names, width) {
  const lines = found.length === 1
    ? SIDES.map((side) => ({ kind: side, name: side, points: found[0].curve.map((p) => [p.epoch, p[side]]) }))
    : found.map((each, i) => ({ kind: i ? "second" : "first", name: names[i], points: each.curve.map((p) => [p.epoch, p.both]) }));
  return [learningCurves(lines, width), el("ul", { class: "legend" }, lines.map((each) => el("li", {}, stroke(each.kind), each.name)))];
}

function summary(measured, first) {
  return el("dl", { class: "figures" }, FIGURES.map(([key, title]) => {
    const range = key === "mrr" && measured.mrr_interval ? el("small", {}, `95 %: ${measured.mrr_interval.map((x) => figure(x)).join(" to ")}`) : null;
    const ahead = key === "mr" ? measured[key] < first[key] : measured[key] > first[key];
    return el("div", {}, el("dt", {}, title), el("dd", { class: ahead ? "better" : null }, figure(measured[key], key === "mr" ? 1 : 3), range));
  }));
}

function baselines(report) {
  if (!report.baselines) return "";
  return el("section", { class: "card" }, el("h2", {}, "Beside what learns nothing"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", {}, "MRR"), SIDES.map((side) => el("th", {}, side)))),
    el("tbody", {}, [["this run", report], ...Object.entries(report.baselines)].map(([name, each]) =>
      el("tr", {}, el("td", {}, name), SIDES.map((side) => el("td", {}, figure(each[side]?.mrr)))))))));
}

// A row for each relation; a click on a column's title sorts by it.
function relations(reports, names) {
  const columns = [
    ["relation", (name) => name],
    ["facts", (name) => reports[0].relations[name].tail.count],
    ...(reports.length === 1
      ? SIDES.map((side) => [`MRR ${side}`, (name) => reports[0].relations[name][side].mrr])
      : names.map((run, i) => [`MRR ${run}`, (name) => reports[i]?.relations?.[name]?.both.mrr])),
    ["Hits@10", (name) => reports[0].relations[name].both["hits@10"]],
  ];
  let by = 1, down = true;
  const body = el("tbody"), heads = columns.map(([title], i) => el("th", { scope: "col" }, el("button", { type: "button", onclick: () => { down = by === i ? !down : i > 0; by = i; sort(); } }, title)));
  function sort() {
    const value = columns[by][1], all = Object.keys(reports[0].relations);
    all.sort((a, b) => { const [x, y] = [value(a) ?? -1, value(b) ?? -1]; return (x < y ? -1 : x > y ? 1 : a < b ? -1 : 1) * (down ? -1 : 1); });
    heads.forEach((head, i) => { head.setAttribute("aria-sort", i !== by ? "none" : down ? "descending" : "ascending"); head.firstChild.textContent = columns[i][0] + (i !== by ? "" : down ? " ↓" : " ↑"); });
    body.replaceChildren(...all.map((name) => el("tr", {}, columns.map(([, read], i) => el("td", {}, i === 0 ? name : i === 1 ? count(read(name)) : figure(read(name)))))));
  }
  sort();
  return el("section", { class: "card" }, el("h2", {}, "By relation"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), body)));
}
