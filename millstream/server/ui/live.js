// Requests to the client, with the token in a header and never in a URL.

const KEPT = "millstream.token";

/** The server refuses this page. */
export class NotLetIn extends Error {}

export class Session {
  constructor() {
    this.token = sessionStorage.getItem(KEPT);
  }

  use(token, keep) {
    this.token = token;
    if (keep) sessionStorage.setItem(KEPT, token);
    else sessionStorage.removeItem(KEPT);
  }

  forget() {
    this.token = null;
    sessionStorage.removeItem(KEPT);
  }

  async open(path, given = {}) {
    const headers = { ...given.headers };
    if (this.token) headers.authorization = `Bearer ${this.token}`;
    const options = { credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer" };
    const answer = await fetch(new URL(`../v1/${path}`, location.href), { ...options, ...given, headers });
    if (answer.status === 401) throw new NotLetIn("the token is wrong");
    return answer;
  }

  /** Status and body of an answer; throws what the server says went wrong. */
  async ask(path, given) {
    const answer = await this.open(path, given);
    const body = await answer.json();
    if (body.error) throw new Error(`${body.message} (${body.error})`);
    return { status: answer.status, body };
  }

  async tell(path, body) {
    const headers = { "content-type": "application/json" };
    return (await this.ask(path, { method: "POST", headers, body: JSON.stringify(body) })).body;
  }

  /** Calls `change` with each event until the connection ends, which throws. */
  async watch(change, signal) {
    const answer = await this.open("dashboard/events", { signal });
    if (!answer.ok) throw new Error((await answer.json()).message);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the client closed the connection");
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.split("\n").find((line) => line.startsWith("data: "));
        change(data ? JSON.parse(data.slice(6)) : {});
      }
    }
  }
}
