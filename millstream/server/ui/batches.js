// Batches: how long they take and of what, and how much they read.

import { card, facts, h, moment, number, refill, table } from "./dom.js";
import { chart, meter } from "./drawing.js";

const KEPT = 120;

export function batches() {
  const list = h("div", { class: "cards" });
  const none = h("p", { class: "quiet" }, "no batch has been reported here yet; the pipelines may be on other clients");
  const cards = new Map();

  function update({ batches: all }) {
    const found = all ?? [];
    none.hidden = !!found.length;
    for (const name of [...cards.keys()]) {
      if (!found.some((each) => each.pipeline === name)) {
        cards.get(name).node.remove();
        cards.delete(name);
      }
    }
    for (const each of found) {
      if (!cards.has(each.pipeline)) {
        cards.set(each.pipeline, pipeline(each.pipeline));
        list.append(cards.get(each.pipeline).node);
      }
      cards.get(each.pipeline).update(each);
    }
  }
  return { title: "Spark", node: h("div", null, none, list), update };
}

function pipeline(name) {
  const figures = h("div");
  const rates = h("div");
  const times = h("div");
  const parts = table("Average time of a batch, by phase", [
    ["Part", "mono", (row) => row.part],
    ["Time", "number", (row) => number(row.took, "ms")],
    ["", "", (row) => meter(row.took, row.most)],
  ], "no batch ran in the last minute");
  const past = { rate: [], took: [] };
  let last = null;

  const node = card(`Pipeline ${name}`, "", figures, h("div", { class: "cards" },
    h("div", { class: "card half" }, h("h3", null, "Records per second"), rates),
    h("div", { class: "card half" }, h("h3", null, "Duration of a batch"), times)),
    h("div", { class: "cards" }, h("div", { class: "card half" }, parts.node)));

  function update(each) {
    if (last !== JSON.stringify(each)) {
      last = JSON.stringify(each);
      add(past.rate, each["processed-rows-per-second"] ?? 0);
      add(past.took, each["batch-duration-last"] ?? 0);
    }
    refill(figures, each, () => facts([
      ["Last batch", number(each["batch-id"])],
      ["At", moment(each["last-batch-timestamp"])],
      ["Took", number(each["batch-duration-last"], "ms")],
      ["On average", number(each["batch-duration-avg"], "ms")],
      ["At most", number(each["batch-duration-max"], "ms")],
      ["Batches per second", number(each["batch-rate"])],
      ["Records in total", number(each["input-rows-total"])],
      ["Read per second", number(each["input-rows-rate"])],
    ], "figures"));
    refill(rates, past.rate, () => [chart(past.rate, `Records per second of ${name}`),
      h("p", { class: "quiet" }, `now ${number(past.rate.at(-1))}, at most ${number(Math.max(...past.rate))}`)]);
    refill(times, past.took, () => [chart(past.took, `Duration of the batches of ${name}`),
      h("p", { class: "quiet" }, `now ${number(past.took.at(-1), "ms")}, at most `
        + number(Math.max(...past.took), "ms"))]);
    const took = Object.entries(each.parts).filter(([part]) => part !== "triggerExecution");
    const most = Math.max(...took.map(([, value]) => value ?? 0), 0);
    parts.fill(took.filter(([, value]) => value !== null).sort(([, one], [, other]) => other - one)
      .map(([part, value]) => ({ part, took: value, most })));
  }
  return { node, update };
}

function add(values, value) {
  values.push(value);
  if (values.length > KEPT) values.shift();
}
