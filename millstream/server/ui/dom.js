// Elements made of data. Text is always put in as text: nothing that comes from the client is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, given, children) {
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

export const h = (tag, given, ...children) => filled(document.createElement(tag), given, children);
export const s = (tag, given, ...children) => filled(document.createElementNS(SVG, tag), given, children);

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Put other children into an element, only if what they are made of is not what it was. */
export function refill(element, made_of, children) {
  const key = JSON.stringify(made_of);
  if (element.madeOf === key) return;
  element.madeOf = key;
  element.replaceChildren();
  put(element, [children()]);
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function number(value, unit = "") {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) < 10 && !Number.isInteger(value) ? short.format(value) : whole.format(value);
  return unit ? `${text} ${unit}` : text;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${short.format(value)} ${units[at]}`;
}

/** A moment: the time of day, with the whole of it for who points at it. */
export function moment(value) {
  if (value === null || value === undefined || value === "") return "–";
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return String(value);
  const day = date.toDateString() === new Date().toDateString() ? "" : `${date.toLocaleDateString("sv")} `;
  const iso = date.toISOString();
  return h("time", { datetime: iso, title: iso }, day + date.toTimeString().slice(0, 8));
}

/** How long it is until then. */
export function until(value) {
  const seconds = Math.round((new Date(value).getTime() - Date.now()) / 1000);
  if (seconds <= 0) return "now";
  return seconds < 120 ? `in ${seconds} s` : `in ${Math.round(seconds / 60)} min`;
}

const GOOD = new Set(["RUNNING", "running", "readable", "runs"]);
const BAD = new Set(["ERROR", "PENDING_ERROR", "DEAD", "failed", "empty", "no answer"]);

export const mood = (word) => (GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : "warn");
export const pill = (word) => h("span", { class: `pill ${mood(word)}` }, word);

export function card(title, size, ...children) {
  const id = `card-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { class: `card ${size}`, "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** A table that is filled again and again. Columns: [head, class, cell of a row]. */
export function table(caption, columns, none = "none") {
  const body = h("tbody");
  const empty = h("p", { class: "quiet" }, none);
  const box = h("div", { class: "scroll" },
    h("table", null, h("caption", null, caption), h("thead", null,
      h("tr", null, columns.map(([head, kind]) => h("th", { scope: "col", class: kind }, head)))), body));
  const node = h("div", null, box, empty);
  const fill = (rows) => {
    box.hidden = !rows.length;
    empty.hidden = !!rows.length;
    refill(body, rows, () => rows.map((row) => h("tr", { class: row.rowClass },
      columns.map(([, kind, cell]) => h("td", { class: kind }, cell(row))))));
  };
  fill([]);
  return { node, fill };
}

/** Pairs of a name and what it is. */
export const facts = (pairs, kind = "") => h("dl", { class: kind },
  pairs.map(([name, value]) => (kind ? h("div", null, h("dt", null, name), h("dd", null, value))
    : [h("dt", null, name), h("dd", null, value)])));
