// Graphs as SVG: the paths behind a fact, and what lies around an entity.

import { svg } from "./dom.js";
import { address } from "./api.js";

const WIDE = 600;  // pixels from which paths run across, otherwise down
const NODE = { width: 132, height: 28 };

const short = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2))}…${text.slice(1 - Math.floor(most / 2))}`);

function board(width, height, label) {
  const tip = (kind) => svg("marker", { id: `tip-${kind}`, orient: "auto", refX: 8, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse" },
    svg("path", { d: "M0 0 L8 4 L0 8 z", class: `tip ${kind}` }));
  return svg("svg", { class: "drawing", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    svg("defs", {}, tip("known"), tip("claim")));
}

function node(entity, [x, y], { width = NODE.width, end = false } = {}) {
  return svg("a", { href: address("entity", { entity }), "aria-label": entity },
    svg("rect", { x: x - width / 2, y: y - NODE.height / 2, width, height: NODE.height, rx: 8, class: end ? "node end" : "node" }),
    svg("text", { x, y: y + 4 }, short(entity, Math.floor(width / 7.4))), svg("title", {}, entity));
}

// Where the line from a node's centre to a point leaves its box.
function border([x, y], [u, v], width) {
  const share = 1 / Math.max(Math.abs(u - x) / (width / 2 + 3), Math.abs(v - y) / (NODE.height / 2 + 3), 1e-6);
  return [x + (u - x) * Math.min(share, 1), y + (v - y) * Math.min(share, 1)];
}

function edge(from, to, bend, kind, width) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]], length = Math.hypot(dx, dy) || 1;
  const over = [(from[0] + to[0]) / 2 - (dy / length) * bend, (from[1] + to[1]) / 2 + (dx / length) * bend];
  const [a, b] = [border(from, over, width), border(to, over, width)];
  const middle = [(a[0] + 2 * over[0] + b[0]) / 4, (a[1] + 2 * over[1] + b[1]) / 4];
  const path = svg("path", { d: `M${a} Q${over} ${b}`, class: `edge ${kind}`, "marker-end": `url(#tip-${kind})` });
  return { path, middle };
}

const word = (text, [x, y], kind, most) =>
  svg("text", { x, y: y + 4, class: `word ${kind}` }, short(text, most), svg("title", {}, text));

export function drawPaths(fact, paths, room) {
  const across = room >= WIDE, width = Math.max(room, 260);
  const between = (path) => {  // the entities between head and tail, along the path
    let at = fact.head;
    return path.slice(0, -1).map((step) => (at = step.head === at ? step.tail : step.head));
  };
  const distinct = new Map(paths.map((path) => [JSON.stringify(path.length > 1 ? between(path) : path), path]).reverse());
  const shown = [...distinct.values()].reverse().slice(0, across ? 4 : 2), chains = shown.map(between);
  const seenOnce = new Set(), fresh = chains.filter((chain) => chain.some((entity) => !seenOnce.has(entity) && seenOnce.add(entity)));
  const lanes = fresh.length, direct = chains.filter((chain) => !chain.length).length;
  const box = across ? NODE.width : Math.min(NODE.width, width / 2 - 44);
  const top = 26 + 38 * (direct + (fact.head === fact.tail ? 1 : 0));
  const height = across ? top + 62 * lanes + 34 : 330;
  const places = new Map(across
    ? [[fact.head, [box / 2 + 4, top]], [fact.tail, [width - box / 2 - 4, top]]]
    : [[fact.head, [width / 2, 20]], [fact.tail, [width / 2, height - 20]]]);
  let lane = 0;
  for (const chain of fresh) {
    lane += 1;
    chain.forEach((entity, i) => {
      if (places.has(entity)) return;
      const along = (i + 1) / (chain.length + 1);
      places.set(entity, across
        ? [box / 2 + 4 + along * (width - box - 8), top + 62 * lane]
        : [(width / lanes) * (lane - 0.5), 20 + along * (height - 40)]);
    });
  }
  const picture = board(width, height, `Paths from ${fact.head} to ${fact.tail}`);
  const drawn = new Map(), words = [], seen = new Set();
  for (const step of [fact, ...shown.flat()]) {
    const name = JSON.stringify([step.head, step.relation, step.tail]);
    if (seen.has(name) || !places.has(step.head) || !places.has(step.tail)) continue;
    seen.add(name);
    const ends = JSON.stringify([step.head, step.tail].sort()), earlier = drawn.get(ends) ?? 0;
    drawn.set(ends, earlier + 1);
    const kind = step === fact ? "claim" : "known", turn = places.get(step.head)[0] <= places.get(step.tail)[0] ? -1 : 1;
    const { path, middle } = edge(places.get(step.head), places.get(step.tail), turn * 40 * earlier, kind, box);
    picture.append(path);
    words.push(word(step.relation, middle, kind, across ? 26 : 16));
  }
  for (const [entity, place] of places) picture.append(node(entity, place, { width: box, end: entity === fact.head || entity === fact.tail }));
  picture.append(...words);
  return picture;
}

export function drawNeighbours(entity, facts, predicted, room) {
  const width = Math.max(room, 280), wide = width >= WIDE, most = wide ? 14 : 8;
  const chosen = [...spread(facts, most - Math.min(predicted.length, most / 2)), ...predicted].slice(0, most);
  const height = wide ? 440 : 420, centre = [width / 2, height / 2], box = wide ? 124 : 100;
  const picture = board(width, height, `Facts around ${entity}`), words = [], nodes = [];
  const around = (i) => {  // on an ellipse; where that is too narrow, in two columns
    const side = width / 2 - box / 2 - 4, angle = (2 * Math.PI * (i + 0.5)) / chosen.length - Math.PI / 2;
    if (wide) return [centre[0] + Math.cos(angle) * side, centre[1] + Math.sin(angle) * (height / 2 - 22)];
    const rows = Math.ceil(chosen.length / 2), row = Math.floor(i / 2) + 0.5;
    return [centre[0] + (i % 2 ? side : -side), (height / rows) * row];
  };
  chosen.forEach((fact, i) => {
    const other = fact.head === entity ? fact.tail : fact.head, place = around(i);
    const kind = fact.split ? "known" : "claim", ends = fact.head === entity ? [centre, place] : [place, centre];
    const { path, middle } = edge(...ends, 0, kind, box);
    picture.append(path);
    words.push(word(fact.relation, middle, kind, wide ? 22 : 13));
    nodes.push(node(other, place, { width: box }));
  });
  picture.append(...nodes, node(entity, centre, { width: box + 10, end: true }), ...words);
  return picture;
}

// Facts of all relations by turns.
function spread(facts, most) {
  const groups = new Map();
  for (const fact of facts) groups.set(fact.relation, [...(groups.get(fact.relation) ?? []), fact]);
  const taken = [];
  for (let i = 0; taken.length < most && [...groups.values()].some((group) => group.length > i); i++)
    for (const group of groups.values()) if (group[i] && taken.length < most) taken.push(group[i]);
  return taken;
}
