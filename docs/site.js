// The search takes each word for the beginning of one, so "how do I join a stream" would find Docker and
// everything with an a. Words that say nothing are left out of what its worker gets, unless there are no others.
const IDLE = new Set((
  "a an and are as at be by can did do does for from got has have how i if in is it its my no not of on or our so that "
  + "the then there this to use used using was we were what when where which who why will with you your"
).split(" "));
// A pasted message is looked for in texts, where a title with one of its words would otherwise outweigh all of them,
// and by whole words: "bool" and not "bool_and". A factor, here 1, is what keeps the worker from adding a wildcard.
const QUESTION = /^(how|what|when|where|which|who|why|can|do|does|is|are)\b|\?\s*$/i;
const QUERY = 2; // Material's number for this kind of message

function telling(query) {
  if (/["+~^]|\b(title|text|tags):/.test(query)) return query; // somebody knows the language of queries
  const words = query.split(/[^\p{L}\p{N}_.-]+/u).filter(Boolean);
  const kept = words.filter(word => !IDLE.has(word.toLowerCase()));
  if (!kept.length) return query;
  if (words.length < 5 || QUESTION.test(query)) return kept.join(" ");
  return kept.map(word => `text:${word}^1`).join(" ");
}

const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const isQuery = message && message.type === QUERY && typeof message.data === "string";
  return post.call(this, isQuery ? { ...message, data: telling(message.data) } : message, ...rest);
};
