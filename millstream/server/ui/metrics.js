// Every metric of the client, under Kafka Streams' names, with a search.

import { card, h, number, table } from "./dom.js";

const EVERY_MS = 5000;
const MOST = 300;

const cut = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);

export function metrics(app) {
  const words = h("input", { id: "metrics-words", type: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "such as lag, or p0 latency", oninput: () => fill() });
  const said = h("p", { class: "said quiet", role: "status" });
  const found = table("Metrics of this client", [
    ["Name", "mono", (row) => h("span", { title: row.description }, row.name)],
    ["Value", "number", (row) => (typeof row.value === "string" ? h("span", { title: row.value }, cut(row.value))
      : number(row.value))],
    ["Of", "mono wide", (row) => row.of],
    ["Group", "mono", (row) => row.group],
  ], "no metric matches all of these words");
  const node = h("div", { class: "cards" }, card("All metrics", "",
    h("label", { for: "metrics-words" }, "Words in name, group or tags"), words, said, found.node));
  found.node.firstChild.classList.add("long");
  let all = [];
  let asked = 0;

  async function ask() {
    asked = Date.now();
    try {
      const { body } = await app.session.ask("metrics");
      all = body.metrics.map((each) => ({ ...each,
        of: Object.entries(each.tags).filter(([tag]) => tag !== "client-id")
          .map(([tag, value]) => `${tag}=${value}`).join(" ") }));
      fill();
    } catch (error) {
      said.textContent = error.message;
    }
  }

  function fill() {
    const wanted = words.value.toLowerCase().split(/\s+/);
    const fitting = all.filter((each) => {
      const text = `${each.group} ${each.name} ${each.of}`.toLowerCase();
      return wanted.every((word) => text.includes(word));
    });
    said.textContent = fitting.length > MOST ? `the first ${MOST} of ${fitting.length}; add words to narrow it down`
      : `${fitting.length} of ${all.length}`;
    found.fill(fitting.slice(0, MOST));
  }

  function update() {
    if (Date.now() - asked >= EVERY_MS) ask();
  }
  return { title: "Metrics", node, update };
}
