// The topology as a drawing, with the measured flow along its arrows.

import { card, h, number, refill, table } from "./dom.js";
import { draw } from "./drawing.js";

export function topology(app) {
  const picture = h("div", { class: "drawing natural scroll", tabindex: "0", role: "region",
    "aria-label": "Drawing of the topology" });
  const whole = h("input", { type: "checkbox",
    onchange: () => picture.classList.toggle("natural", !whole.checked) });
  const topics = table("Topics that this client's pipelines read", [
    ["Topic", "mono", (row) => row.topic],
    ["Records/s", "number", (row) => number(row.rate)],
    ["Lag", "number", (row) => number(row.lag)],
  ], "this client's pipelines have read nothing yet, or other clients run them");
  const nodes = table("Processors whose records are counted", [
    ["Processor", "mono", (row) => row.node],
    ["Records/s", "number", (row) => number(row.rate)],
    ["Dropped", "number", (row) => number(row.dropped)],
  ], "nothing has been counted here yet");
  const text = h("pre", { class: "mono", tabindex: "0" });
  let drawn = null;

  const node = h("div", { class: "cards" },
    card("Drawing", "", h("p", { class: "quiet" }, "Rates are this client's, over the last minute. "
      + "Dashed arrows lead to stores."), h("label", { class: "check" }, whole, "fit it into the window"), picture),
    card("Topics", "half", topics.node),
    card("Processors", "half", nodes.node),
    card("As text", "", h("details", null, h("summary", null, "What describe() prints"), text)));

  function update({ flow, threads, sizes }) {
    if (!drawn && app.still) {
      drawn = draw(app.still.topology, "The topology: topics, subtopologies with their processors, and stores");
      picture.append(drawn.svg);
      text.textContent = app.still.described;
    }
    if (!flow) return;
    const runs = new Map((threads ?? []).flatMap((each) => each.pipelines).map((each) => [each.name, each]));
    for (const { of, text: beside } of drawn?.figures ?? []) {
      const [words, late] = figure(of, flow, sizes ?? {});
      refill(beside, words, () => words);
      beside.setAttribute("class", late ? "figure late" : "figure");
    }
    for (const { frame, text: title } of drawn?.titles ?? []) {
      const run = runs.get(frame.pipeline);
      const now = !frame.pipeline ? "" : !run ? " · not on this client"
        : run.running ? "" : " · not running";
      refill(title, frame.title + now, () => frame.title + now);
    }
    topics.fill(Object.entries(flow.topics).map(([topic, each]) => ({ topic, ...each })));
    const named = new Set([...Object.keys(flow.nodes), ...Object.keys(flow.dropped)]);
    nodes.fill([...named].sort().map((each) => ({ node: each, rate: flow.nodes[each],
      dropped: flow.dropped[each] ?? 0 })));
  }
  return { title: "Topology", node, update };
}

/** The text below a store or beside an arrow, and whether records wait there. */
function figure(of, flow, sizes) {
  if (of.kind === "store") {
    const keys = sizes[of.id.slice("store ".length)]?.keys;
    return [keys === undefined ? "" : `≈${number(keys)} keys`, false];
  }
  if (!of.from.startsWith("topic ")) return ["", false];
  const topic = flow.topics[of.from.slice("topic ".length)];
  if (!topic) return ["", false];
  const lag = topic.lag ? `, ${number(topic.lag)} behind` : "";
  return [`${number(topic.rate ?? 0)}/s${lag}`, !!topic.lag];
}
