// The failures, their responses, and the next retries.

import { card, h, moment, number, table, until } from "./dom.js";

export function failures() {
  const found = table("The last failures, newest first", [
    ["At", "", (row) => moment(row.at)],
    ["What", "mono", (row) => row.pipeline ?? row.task_id ?? row.thread],
    ["Exception", "wide", (row) => row.exception],
    ["Decided", "", (row) => row.response],
    ["Attempt", "number", (row) => number(row.attempt) + (row.most === null ? "" : ` of ${row.most}`)],
    ["Next try", "", (row) => (row.next_try === null ? "–" : [moment(row.next_try), ` ${row.when}`])],
    ["Batch", "number", (row) => number(row.batch_id)],
    ["Records", "mono", (row) => row.where],
    ["Thread", "mono", (row) => row.thread],
  ], "nothing has failed");
  const node = h("div", { class: "cards" }, card("History", "", found.node));

  function update({ failures: all }) {
    found.fill([...(all ?? [])].reverse().map((each) => ({ ...each,
      when: each.next_try === null ? "" : until(each.next_try).replace(/^now$/, "(started)"),
      where: Object.entries(each.offsets ?? {}).map(([at, [from, to]]) => `${at} [${from}, ${to})`).join(" ")
        || "–" })));
  }
  return { title: "Failures", node, update };
}
