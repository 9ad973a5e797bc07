// Pictures: boxes and curves whose places the client has worked out.

import { s } from "./dom.js";

const MARGIN = 20;
const ROUND = { topic: 17 };
let pictures = 0;

/**
 * An <svg> of a picture; `boxes` has its groups by id, and `figures` the texts beside its lines
 * and below its stores. */
export function draw(picture, title, word = (box) => box.kind) {
  const head = `head-${(pictures += 1)}`;
  const boxes = new Map();
  const figures = [];
  const width = picture.width + 2 * MARGIN;
  const height = picture.height + 2 * MARGIN;
  const svg = s("svg", { role: "img", "aria-label": title, width, height,
    viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}` },
    s("title", null, title),
    s("defs", null, s("marker", { id: head, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8,
      orient: "auto" }, s("path", { class: "head", d: "M0,0 L8,4 L0,8 z" }))));
  for (const frame of picture.frames) svg.append(s("rect", { class: "frame", ...place(frame), rx: 10 }));
  for (const line of picture.lines) {
    const state = line.kind === "state";
    svg.append(s("path", { class: `line ${line.kind}`, d: line.path,
      "marker-end": state ? null : `url(#${head})` }));
  }
  for (const box of picture.boxes) {
    const group = s("g", { class: `kind-${box.kind}` }, s("title", null, `${word(box)} ${box.name}`),
      box.kind === "store" ? drum(box) : s("rect", { class: `box ${box.kind}`, ...place(box),
        rx: ROUND[box.kind] ?? 4 }),
      s("text", { "text-anchor": "middle", x: box.x + box.width / 2, y: box.y + box.height / 2 + 4 }, box.label));
    boxes.set(box.id, group);
    svg.append(group);
  }
  const titles = picture.frames.map((frame) => {
    const text = s("text", { class: "title", x: frame.x + 18, y: frame.y + 24 }, frame.title);
    svg.append(text);
    return { frame, text };
  });
  const figure = (of, x, y) => {
    const text = s("text", { class: "figure", x, y });
    svg.append(text);
    figures.push({ of, text });
  };
  for (const line of picture.lines) if (line.kind !== "state") figure(line, line.x, line.y + 4);
  for (const box of picture.boxes) {
    if (box.kind === "store") figure(box, box.x + box.width / 2, box.y + box.height + 11);
  }
  return { svg, boxes, figures, titles };
}

const place = ({ x, y, width, height }) => ({ x, y, width, height });

function drum({ x, y, width, height }) {
  const [top, bottom, middle] = [y + 4, y + height - 4, width / 2];
  return s("path", { class: "box store", d: `M${x},${top} a${middle},5 0 0 1 ${width},0 V${bottom} `
    + `a${middle},5 0 0 1 ${-width},0 z M${x},${top} a${middle},5 0 0 0 ${width},0` });
}

/** A line through the last values; the highest is at the top. */
export function chart(values, title) {
  const most = Math.max(...values, 0) || 1;
  const step = 100 / Math.max(values.length - 1, 1);
  const points = values.map((value, at) => `${(at * step).toFixed(2)},${(29 - (27 * value) / most).toFixed(2)}`);
  return s("svg", { class: "chart", role: "img", "aria-label": title, viewBox: "0 0 100 30",
    preserveAspectRatio: "none" }, s("title", null, title), s("polyline", { points: points.join(" ") }));
}

/** How large a part is of the largest. */
export function meter(value, most) {
  return s("svg", { class: "meter", "aria-hidden": "true", viewBox: "0 0 100 6", preserveAspectRatio: "none" },
    s("rect", { class: "bar", width: most ? (100 * value) / most : 0, height: 6, rx: 1 }));
}
