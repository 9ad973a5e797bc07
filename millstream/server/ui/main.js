// The page: which view is shown, whether the client answers, and the token.

import { h, mood } from "./dom.js";
import { NotLetIn, Session } from "./live.js";
import { batches } from "./batches.js";
import { clients } from "./clients.js";
import { failures } from "./failures.js";
import { metrics } from "./metrics.js";
import { overview } from "./overview.js";
import { stores } from "./stores.js";
import { topology } from "./topology.js";

const AGAIN_MS = 2000;
const VIEWS = { overview, topology, stores, failures, spark: batches, clients, metrics };

const find = (id) => document.getElementById(id);
const app = { session: new Session(), still: null, model: {} };
const views = Object.fromEntries(Object.entries(VIEWS).map(([name, make]) => [name, make(app)]));
const links = {};
let shown = null;
let heard = null;

for (const [name, view] of Object.entries(views)) {
  links[name] = h("a", { href: `#/${name}` }, view.title, h("span", { class: "count", hidden: true }));
  find("views").append(h("li", null, links[name]));
}

function show(focus) {
  const name = location.hash.slice(2) in views ? location.hash.slice(2) : "overview";
  if (name !== shown) {
    shown = name;
    for (const [each, link] of Object.entries(links)) {
      if (each === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const view = views[name];
    find("view").replaceChildren(h("h1", null, view.title), view.node);
    document.title = `${view.title} · Millstream`;
    if (focus) {
      find("content").focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }
  views[shown].update(app.model);
}

function changed(sections) {
  heard = new Date();
  find("view").classList.remove("old");
  Object.assign(app.model, sections);
  const { client, failures: failed, trouble } = app.model;
  if (client) {
    const word = client.paused ? `${client.state}, paused` : client.state;
    find("client").textContent = client.id;
    if (find("state").textContent !== word) find("state").textContent = word;
    find("state").className = `pill ${client.paused ? "warn" : mood(client.state)}`;
  }
  const count = links.failures.querySelector(".count");
  count.hidden = !failed?.length;
  count.textContent = failed?.length ?? "";
  count.setAttribute("aria-label", `${failed?.length} failures`);
  if (trouble) say(`the client cannot be looked at: ${trouble}`, true);
  else say("live");
  show(false);
}

function say(text, lost = false) {
  if (find("connection").textContent !== text) find("connection").textContent = text;
  find("connection").className = lost ? "pill bad" : "quiet";
}

function ask_for_token(error) {
  find("login").hidden = false;
  find("view").hidden = true;
  find("login-error").textContent = error;
  find("token").focus();
  say("not connected");
}

/** A hidden page requests nothing. */
const seen = () => new Promise((resolve) => {
  if (!document.hidden) { resolve(); return; }
  document.addEventListener("visibilitychange", () => resolve(), { once: true });
});

async function follow() {
  let tried = false;
  for (;;) {
    await seen();
    const stop = new AbortController();
    const hide = () => { if (document.hidden) stop.abort(); };
    document.addEventListener("visibilitychange", hide);
    try {
      app.still = (await app.session.ask("dashboard")).body;
      find("login").hidden = true;
      find("view").hidden = false;
      find("logout").hidden = !app.session.token;
      tried = false;
      await app.session.watch(changed, stop.signal);
    } catch (error) {
      if (error instanceof NotLetIn) {
        ask_for_token(app.session.token || tried ? "That is not this server's token." : "");
        app.session.forget();
        return;
      }
      if (!stop.signal.aborted) {
        const old = heard ? `; this is from ${heard.toLocaleTimeString("en-GB")}` : "";
        say(`no connection: ${error.message}${old}; trying again`, true);
        find("state").className = "pill";
        find("view").classList.add("old");
      }
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

find("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  app.session.use(find("token").value.trim(), find("keep").checked);
  find("token").value = "";
  follow();
});
find("logout").addEventListener("click", () => {
  app.session.forget();
  location.reload();
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/")) show(true);
});
show(false);
say("connecting");
follow();
