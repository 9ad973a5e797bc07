// SQL over the client's stores, if its server answers SQL.

import { card, h, table } from "./dom.js";

const MOST = 500;

export function sql(app) {
  const query = h("textarea", { id: "query", rows: "3", spellcheck: "false", class: "mono",
    placeholder: "select * from … limit 50" });
  const part = h("input", { type: "checkbox", id: "query-part" });
  const said = h("p", { class: "said", role: "status" });
  const results = h("div");
  const refused = h("p", { class: "quiet" }, "A server without a token answers no SQL.");
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); run(); } },
    h("label", { for: "query" }, "Query"), query,
    h("label", { class: "check" }, part, "only the partitions of this client"),
    h("button", { type: "submit", class: "main" }, "Run"));

  async function run() {
    said.textContent = "…";
    try {
      const answer = await app.session.tell(`sql${part.checked ? "?local=true" : ""}`, { query: query.value });
      const shown = table("Result", answer.columns.map((column, at) => [`${column.name} (${column.type})`,
        "mono", (row) => (typeof row[at] === "string" ? row[at] : JSON.stringify(row[at]))]), "no row");
      shown.fill(answer.rows.slice(0, MOST));
      shown.node.firstChild.classList.add("long");
      said.textContent = answer.rows.length > MOST ? `the first ${MOST} of ${answer.rows.length} rows`
        : `${answer.rows.length} rows`;
      results.replaceChildren(shown.node);
    } catch (error) {
      said.textContent = error.message;
      results.replaceChildren();
    }
  }

  function update({ client }) {
    form.hidden = !client?.commands;
    refused.hidden = !client || client.commands;
  }
  return { node: card("SQL", "", form, refused, said, results), update };
}
