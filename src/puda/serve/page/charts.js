// Learning curves and reliability diagrams as SVG.

import { svg } from "./dom.js";

const LEFT = 40, ABOVE = 24, BELOW = 42;

function frame(width, height, { xs, ys, xName, yName, label }) {
  const x = (v) => LEFT + ((v - xs[0]) / (xs[1] - xs[0] || 1)) * (width - LEFT - 14);
  const y = (v) => height - BELOW - ((v - ys[0]) / (ys[1] - ys[0] || 1)) * (height - BELOW - ABOVE);
  const picture = svg("svg", { class: "drawing", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (let i = 0; i <= 4; i++) {
    const value = ys[0] + ((ys[1] - ys[0]) * i) / 4;
    picture.append(svg("line", { x1: LEFT, x2: width - 14, y1: y(value), y2: y(value), class: "grid" }),
      svg("text", { x: LEFT - 20, y: y(value) + 4, class: "axis" }, value.toFixed(2)));
  }
  for (let i = 0; i <= 4; i++) {
    const value = xs[0] + ((xs[1] - xs[0]) * i) / 4;
    picture.append(svg("text", { x: x(value), y: height - 24, class: "axis" }, xs[1] > 1 ? Math.round(value) : value.toFixed(2)));
  }
  picture.append(svg("text", { x: (width + LEFT) / 2, y: height - 6, class: "axis" }, xName),
    svg("text", { x: LEFT - 34, y: 11, class: "axis start" }, yName));
  return { picture, x, y };
}

const line = (points, kind) => svg("path", { d: points.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join(""), class: `line ${kind}` });

// `curves`: [{ points: [[epoch, mrr], ...], kind, name }]
export function learningCurves(curves, width) {
  const all = curves.flatMap((each) => each.points);
  const xs = [0, 4 * Math.ceil(Math.max(...all.map((p) => p[0])) / 4)], high = Math.max(...all.map((p) => p[1]), 0.01);
  const { picture, x, y } = frame(width, 240, { xs, ys: [0, Math.ceil(high * 5) / 5], xName: "epoch", yName: "MRR", label: "Validation MRR by epoch" });
  for (const { points, kind } of curves) picture.append(line(points.map((p) => [x(p[0]), y(p[1])]), kind));
  return picture;
}

// `sets`: [{ bins: [{ probability, true, count }], kind }]
export function reliabilityDiagram(sets, width) {
  const { picture, x, y } = frame(width, 260, { xs: [0, 1], ys: [0, 1], xName: "probability", yName: "came true", label: "How often facts of a probability came true" });
  picture.append(svg("path", { d: `M${x(0)} ${y(0)} L${x(1)} ${y(1)}`, class: "ideal" }));
  for (const { bins, kind } of sets) {
    picture.append(line(bins.map((bin) => [x(bin.probability), y(bin.true)]), kind));
    for (const bin of bins) picture.append(svg("circle", { cx: x(bin.probability), cy: y(bin.true), r: 2.5 + Math.min(5, Math.log10(bin.count)), class: `dot ${kind}` },
      svg("title", {}, `${bin.count} facts of about ${bin.probability.toFixed(2)}: ${bin.true.toFixed(2)} came true`)));
  }
  return picture;
}

export const stroke = (kind) => svg("svg", { class: "drawing", viewBox: "0 0 26 8", "aria-hidden": "true" }, svg("path", { d: "M0 4 H26", class: `line ${kind}` }));
