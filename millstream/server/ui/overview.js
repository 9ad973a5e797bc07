// The client's health and why, its state machine, its threads and pipelines, and commands.

import { card, facts, h, moment, mood, number, pill, refill, table, until } from "./dom.js";
import { draw } from "./drawing.js";

const MOST_STEPS = 50;

export function overview(app) {
  const health = h("div");
  const machine = h("div", { class: "drawing" });
  const steps = h("ol", { class: "log", "aria-labelledby": "steps", tabindex: "0" });
  const threads = table("The stream threads, their tasks, and the progress of their pipelines", [
    ["Thread, pipeline", "mono", (row) => row.name],
    ["State", "", (row) => pill(row.state)],
    ["Tasks", "mono", (row) => row.tasks],
    ["Standby tasks", "mono", (row) => row.standbys],
    ["Records/s", "number", (row) => row.rate],
    ["Batch", "number", (row) => row.batch],
    ["Took", "number", (row) => row.took],
    ["Lag", "number", (row) => row.lag],
    ["Dropped", "number", (row) => row.dropped],
  ], "no threads");
  const said = h("p", { class: "said", role: "status" });
  const button = (text, path, body, question) => h("button", { type: "button", onclick: async () => {
    if (question && !confirm(question)) return;
    said.textContent = "…";
    try {
      const answer = await app.session.tell(path, body);
      said.textContent = answer.done === false ? "still running; see the threads below" : `${text}: done`;
    } catch (error) {
      said.textContent = error.message;
    }
  } }, text);
  const pause = button("Pause", "pause", {}, "Pause this client? It processes nothing until it is resumed.");
  const resume = button("Resume", "resume", {});
  const buttons = h("div", { class: "actions" }, pause, resume, button("Add a thread", "threads", { change: "add" }),
    button("Remove a thread", "threads", { change: "remove" }, "Remove a stream thread?"),
    button("Close the client", "close", {},
      "Close this client? Other clients take over its work. This page stops working, and the client does not restart."));
  const refused = h("p", { class: "quiet" },
    "A server without a token accepts no commands. Set query.server.token to enable them.");
  let drawn = null;
  let last = null;

  const node = h("div", { class: "cards" },
    h("div", { class: "column" }, card("Health", "", health), card("Commands", "", buttons, refused, said)),
    card("State machine", "half", machine, h("h3", { id: "steps" }, "Transitions since this page was opened"),
      steps),
    card("Threads and pipelines", "", threads.node));

  function update({ client, health: how, threads: all }) {
    if (!drawn && app.still) {
      drawn = draw(app.still.machine, "The states of a client, and their transitions",
        () => "state");
      machine.append(drawn.svg);
    }
    for (const [name, group] of drawn?.boxes ?? []) {
      const now = name === client?.state;
      group.setAttribute("class", now ? `now ${mood(name)}` : "");
    }
    drawn?.svg.setAttribute("aria-label", `State machine of the client; it is ${client?.state} now`);
    if (client && client.state !== last) {
      steps.prepend(h("li", null, moment(Date.now()), last ? ` ${last} → ${client.state}` : ` ${client.state}`));
      while (steps.children.length > MOST_STEPS) steps.lastChild.remove();
      last = client.state;
    }
    if (how) refill(health, [how, Math.floor(Date.now() / (how.next_try ? 1000 : 1e12))], () => tell(how));
    threads.fill(rows(all ?? []));
    buttons.hidden = !client?.commands;
    refused.hidden = !client || client.commands;
    pause.hidden = !!client?.paused;
    resume.hidden = !client?.paused;
  }
  return { title: "Overview", node, update };
}

function tell(how) {
  const details = how.details ?? {};
  const pipelines = details.pipelines ?? {};
  const restoring = Object.entries(details.restoring ?? {});
  const pairs = [
    ["Ready for queries", how.ready ? "yes" : "no"],
    ["Alive", how.live ? "yes" : "no: start a new client"],
    ["Pipelines", `${pipelines.running ?? 0} of ${pipelines.owned ?? 0} run here`
      + (pipelines.total === pipelines.owned ? "" : `; the application has ${pipelines.total ?? 0}`)],
  ];
  if (how.next_try) pairs.push(["Next try", [moment(how.next_try), `, ${until(how.next_try)}`]]);
  for (const [name, each] of Object.entries(details.waiting ?? {})) {
    pairs.push(["Waiting", `${name}: attempt ${each.attempt}${each.most ? ` of ${each.most}` : ""}`]);
  }
  if (restoring.length) {
    pairs.push(["Restoring", restoring.map(([name, left]) => left ? `${name}: ${number(left)} to go` : name).join(", ")]);
  }
  if (pipelines.unowned?.length) pairs.push(["Nobody runs", pipelines.unowned.join(", ")]);
  if (details.missing_topics?.length) pairs.push(["Missing topics", details.missing_topics.join(", ")]);
  if (details.lost_executors?.length) pairs.push(["Lost executors", details.lost_executors.join(", ")]);
  if (details.last_failure) {
    pairs.push(["Last failure", [moment(details.last_failure.at), ` ${details.last_failure.exception}`]]);
  }
  return [h("p", null, pill(how.status)), h("p", { class: "big" }, how.reason), facts(pairs)];
}

function rows(threads) {
  const nothing = { tasks: "", standbys: "", rate: "", batch: "", took: "", lag: "", dropped: "" };
  return threads.flatMap((thread) => [
    { ...nothing, name: thread.thread, state: thread.state, tasks: thread.tasks.join(" ") || "–",
      standbys: thread.standby_tasks.join(" ") || "–" },
    ...thread.pipelines.map((each) => ({ ...nothing, rowClass: "inner", name: each.name,
      state: each.running ? "runs" : "does not run", rate: number(each.records_per_second),
      batch: number(each.batch_id < 0 ? null : each.batch_id),
      took: number(each.batch_id < 0 ? null : each.batch_ms, "ms"), lag: number(each.lag),
      dropped: number(each.dropped) })),
  ]);
}
