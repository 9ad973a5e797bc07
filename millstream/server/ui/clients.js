// The whole application: its clients with their health, stores and standbys; and the group.

import { card, facts, h, number, pill, refill, table } from "./dom.js";

export function clients() {
  const group = h("div");
  const all = table("The clients of the application, by the group's last assignment", [
    ["Client", "mono", (row) => row.host],
    ["Health", "", (row) => (row.status ? pill(row.status) : "–")],
    ["Why", "wide", (row) => row.reason ?? ""],
    ["Stores", "mono", (row) => row.stores.join(" ") || "–"],
    ["Partitions", "number", (row) => number(row.partitions.length)],
    ["Standby stores", "mono", (row) => row.standby_stores.join(" ") || "–"],
    ["Standby partitions", "number", (row) => number(row.standby_partitions.length)],
  ], "the group has no assignment yet, or the clients have no application.server");
  const places = table("Which partition is where", [
    ["Partition", "mono", (row) => row.partition],
    ["Active on", "mono", (row) => row.active.join(" ") || "nobody"],
    ["Standby on", "mono", (row) => row.standby.join(" ") || "–"],
  ]);
  const node = h("div", { class: "cards" }, card("Group", "", group), card("Clients", "", all.node),
    card("Partitions", "", places.node));

  function update({ clients: found, group: figures, others }) {
    const by = new Map((others ?? []).map((each) => [each.host, each]));
    all.fill((found ?? []).map((each) => ({ ...each, ...by.get(each.host) })));
    if (figures) {
      const seconds = (value) => (value === null ? null : value / 1000);
      refill(group, figures, () => facts([
        ["Members", number(figures.members)],
        ["Rebalances", number(figures["rebalance-total"])],
        ["Failed rebalances", number(figures["failed-rebalance-total"])],
        ["Since the last one", number(figures["last-rebalance-seconds-ago"], "s")],
        ["Starts, recoveries", number(figures["recovery-total"])],
        ["The last one took", number(seconds(figures["recovery-time-last"]), "s")],
        ["At most", number(seconds(figures["recovery-time-max"]), "s")],
      ], "figures"));
    }
    const rows = new Map();
    const at = (partition) => {
      if (!rows.has(partition)) rows.set(partition, { partition, active: [], standby: [] });
      return rows.get(partition);
    };
    for (const each of found ?? []) {
      for (const partition of each.partitions) at(partition).active.push(each.host);
      for (const partition of each.standby_partitions) at(partition).standby.push(each.host);
    }
    const order = new Intl.Collator("en", { numeric: true });
    places.fill([...rows.values()].sort((one, other) => order.compare(one.partition, other.partition)));
  }
  return { title: "Clients", node, update };
}
