// What would happen if …? Changes are put together in a form and simulated; the cluster is not touched.

import { amount, make, offer, several } from "./dom.js";
import { get } from "./api.js";
import { named, outcome, table } from "./outcome.js";

const MOST_SHOWN = 20;
const GPU = /(\/|^)gpu$/;
const card = document.querySelector("#what-if-card");
const form = document.querySelector("#what-if");
const answer = document.querySelector("#what-if-answer");
const { count, kind, queue, field, value, drain, remove } = form.elements;
let asked = 0;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  simulate(event.submitter?.value === "until-placed");
});
form.addEventListener("reset", () => {
  asked += 1;
  answer.replaceChildren();
});
kind.addEventListener("focus", learnKinds, { once: true });
count.addEventListener("focus", learnKinds, { once: true });

/** Queues and gangs of a state are what the form offers. */
export function offerChoices(state) {
  offer(queue, [["", "no queue"], ...state.queues.map((each) => [each.queue, each.queue])]);
  offer(document.querySelector("#gangs-known"), state.pending.map((gang) => [gang.gang, ""]));
  if (!kind.options.length) learnKinds();
}

/** A button that asks about one change: `{drain: node}` or `{remove: gang}`. */
export function question(textContent, change) {
  const button = make("button", { type: "button", textContent });
  button.addEventListener("click", () => ask(change));
  return button;
}

function ask(change) {
  form.reset();
  for (const [name, given] of Object.entries(change)) form.elements[name].value = given;
  card.scrollIntoView({ block: "nearest" });
  answer.focus({ preventScroll: true });
  simulate(false);
}

async function learnKinds() {
  const kinds = await get("/v1/node-kinds").catch(() => []);
  offer(kind, kinds.map((each) => [each.example, kindOf(each)]));
}

function kindOf(it) {
  const plugin = Object.entries(it.amounts).filter(([name]) => GPU.test(name))
    .map(([name, many]) => [name, Number(many)]);
  const held = [...Object.entries(it.devices), ...plugin].filter(([name, many]) =>
    many > 0 && !["channel", "daemon"].includes(name));
  const parts = held.slice(0, 2).map(([name, many]) => `${amount(many)} × ${name}`);
  const what = parts.join(", ") || it.type || "no GPUs";
  return `${it.example}: ${what} (${several(it.count, "node")})`;
}

/** Pairs of option and text, as the command line has them. */
function changes() {
  const made = [];
  if (queue.value) made.push(["set", `${queue.value}.${field.value}=${value.value}`]);
  if (Number(count.value) > 0) made.push(["add-nodes", `${kind.value}=${count.value}`]);
  if (drain.value) made.push(["drain", drain.value]);
  if (remove.value) made.push(["remove", remove.value]);
  return made;
}

async function simulate(untilPlaced) {
  const pairs = changes();
  if (untilPlaced) {
    const nodes = pairs.findIndex(([name]) => name === "add-nodes");
    if (nodes >= 0) pairs.splice(nodes, 1);
    pairs.push(["until-placed", kind.value]);
  }
  if (!pairs.length) return tell("Choose a change first: nodes, a queue or a gang.");
  const number = (asked += 1);
  tell("Simulating …");
  try {
    const found = await get(`/v1/what-if?${new URLSearchParams(pairs)}`);
    if (number === asked) answer.replaceChildren(...told(found, pairs));
  } catch (error) {
    if (number === asked) tell(error.message);
  }
}

function tell(text) {
  answer.replaceChildren(make("p", { textContent: text }));
}

function* told(found, pairs) {
  if ("like" in found) {
    yield make("p", { textContent: found.nodes === null
      ? `Even ${found.most} more nodes like ${found.like} would leave gangs pending.`
      : `With ${several(found.nodes, "more node")} like ${found.like}, no gang is short of capacity.` });
  } else {
    yield* compared(found);
  }
  const words = pairs.flatMap(([name, text]) => [`--${name}`, quoted(text)]);
  yield make("p", { className: "command" }, "In a terminal: ",
    make("code", { textContent: ["kai-py what-if", ...words].join(" ") }));
}

function quoted(text) {
  return /^[\w./=:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function* compared({ starts, stops, restarts, victims, pending, queues }) {
  const gangs = (those) => [...new Set(those.map((each) => each.gang))];
  const evicts = gangs([...victims, ...restarts]);
  yield outcome({ starts: gangs(starts), stops: gangs(stops), evicts, queues });
  if (starts.length) {
    const nodes = (of) => named([...new Set(of.nodes)], "more node");
    yield table("Where they start", ["Gang", "Pods", "Nodes"],
      starts.slice(0, MOST_SHOWN).map((of) => [of.gang, amount(of.nodes.length), nodes(of)]));
  }
  if (!pending.length) return yield make("p", { textContent: "No gang is pending." });
  yield make("p", { textContent: `${several(pending.length, "gang")} still pending:` });
  const shown = pending.slice(0, MOST_SHOWN);
  yield make("ul", { className: "advice" }, ...shown.map((of) =>
    make("li", { textContent: `${of.gang} – ${of.stage}: ${of.message}` })));
  const more = pending.length - shown.length;
  if (more > 0) yield make("p", { textContent: `and ${several(more, "more gang")}` });
}
