// The stores: a list, and reads by key, range, window and session, page by page.

import { bytes, card, h, moment, number, refill, table } from "./dom.js";
import { sql } from "./sql.js";

const LIMIT = 50;
const PLACES = { "key-value": "entries", window: "windows", session: "sessions" };

export function stores(app) {
  const list = table("The stores of the application, and their partitions on this client", [
    ["Store", "mono", (row) => row.store],
    ["Kind", "", (row) => row.kind],
    ["Key", "", (row) => row.key_serde ?? "–"],
    ["Value", "", (row) => row.value_serde ?? "–"],
    ["Partitions here", "", (row) => row.places.map(([at, how]) => [pill_of(at, how), " "])],
    ["Of", "number", (row) => number(row.partitions)],
    ["Keys", "number", (row) => (row.keys === undefined ? "–" : `≈${number(row.keys)}`)],
    ["On disk", "number", (row) => bytes(row.bytes)],
    ["Behind", "number", (row) => number(row.behind)],
  ], "the program has no stores");

  const which = h("select", { id: "read-store" });
  const fields = {
    key: field("Key", "one key; empty for a range"),
    from: field("From key", "or the first"),
    to: field("To key", "or the last"),
    start: field("From time", "2026-07-01T12:00:00Z"),
    end: field("To time", "2026-07-01T13:00:00Z"),
  };
  const reverse = h("input", { type: "checkbox", id: "read-reverse" });
  const stale = h("input", { type: "checkbox", id: "read-stale" });
  const said = h("p", { class: "said", role: "status" });
  const results = h("div");
  const next = h("button", { type: "button", hidden: true, onclick: () => read(cursor) }, "Next page");
  const form = h("form", { class: "row", onsubmit: (event) => { event.preventDefault(); read(null); } },
    h("div", null, h("label", { for: "read-store" }, "Store"), which),
    Object.values(fields).map((each) => each.node),
    h("label", { class: "check" }, reverse, "last first"),
    h("label", { class: "check" }, stale, "also from standbys"),
    h("button", { type: "submit", class: "main" }, "Read"));
  const select = sql(app);
  const node = h("div", { class: "cards" }, card("All stores", "", list.node),
    card("Read", "", form, said, results, h("div", { class: "actions" }, next)), select.node);
  let known = new Map();
  let cursor = null;

  which.addEventListener("change", fit);

  function fit() {
    const windowed = known.get(which.value)?.kind !== "key-value";
    fields.start.node.hidden = fields.end.node.hidden = !windowed;
  }

  async function read(from) {
    const store = known.get(which.value);
    if (!store) return;
    said.textContent = "…";
    next.hidden = true;
    try {
      const { status, body } = await app.session.ask(path_of(store, from));
      const found = body.entries ?? ("value" in body && status !== 404 ? [body] : []);
      cursor = body.next ?? null;
      next.hidden = !cursor;
      said.textContent = found.length ? `${found.length} of ${store.store}`
        : status === 404 ? "this key has no value" : "no entries";
      const shown = entries(store);
      shown.fill(found);
      shown.node.firstChild.classList.add("long");
      results.replaceChildren(shown.node);
    } catch (error) {
      said.textContent = error.message;
      results.replaceChildren();
    }
  }

  function path_of(store, from) {
    const given = new URLSearchParams();
    const put = (name, value) => { if (value) given.set(name, value); };
    const of = Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, each.input.value]));
    const one = of.key !== "";
    const pair = store.kind === "key-value";
    if (stale.checked) given.set("stale", "true");
    if (!one || !pair) {
      given.set("limit", LIMIT);
      if (reverse.checked) given.set("reverse", "true");
      if (from) given.set("cursor", from);
    }
    if (!one) {
      put(pair ? "from" : "from_key", of.from);
      put(pair ? "to" : "to_key", of.to);
    }
    if (store.kind === "window") {
      put("from", of.start);
      put("to", of.end);
    } else if (store.kind === "session") {
      put("earliest_end", of.start);
      put("latest_start", of.end);
    }
    const place = one && pair ? "keys" : PLACES[store.kind];
    const key = one ? `/${encodeURIComponent(of.key)}` : "";
    return `stores/${encodeURIComponent(store.store)}/${place}${key}?${given}`;
  }

  function update(model) {
    const { stores: all, sizes, lags } = model;
    select.update(model);
    const found = all ?? [];
    known = new Map(found.map((each) => [each.store, each]));
    const before = which.value;
    refill(which, found.map((each) => each.store), () => found.map((each) =>
      h("option", { value: each.store, selected: each.store === before }, each.store)));
    fit();
    list.fill(found.map((each) => ({ ...each, ...(sizes ?? {})[each.store],
      behind: sum(Object.values((lags ?? {})[each.store] ?? {})),
      places: Object.entries(each.here).sort(([one], [other]) => one - other) })));
  }
  return { title: "Stores", node, update };
}

const sum = (values) => (values.length ? values.reduce((one, other) => one + other, 0) : null);

const pill_of = (at, how) => (how === "readable" ? pill_with(at, "good", how) : pill_with(`${at} ${how}`, how === "standby" ? "" : "warn", how));
const pill_with = (text, kind, title) => h("span", { class: `pill ${kind}`, title }, text);

function field(name, hint) {
  const id = `read-${name.toLowerCase().replace(" ", "-")}`;
  const input = h("input", { id, placeholder: hint, autocomplete: "off", spellcheck: "false" });
  return { input, node: h("div", null, h("label", { for: id }, name), input) };
}

function entries(store) {
  const time = (name, head) => [head, "", (row) => moment(row[name])];
  const columns = [["Key", "mono", (row) => text_of(row.key)]];
  if (store.kind === "window") columns.push(time("start", "Window from"));
  if (store.kind === "session") columns.push(time("start", "From"), time("end", "To"));
  columns.push(["Value", "mono wide", (row) => text_of(row.value)], time("timestamp", "Timestamp"));
  return table("Entries", columns, "");
}

const text_of = (value) => (typeof value === "string" ? value : JSON.stringify(value) ?? "–");
