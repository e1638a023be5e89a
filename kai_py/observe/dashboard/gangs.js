// Who waits, and why? One line per gang; opened, it tells its whole explanation.

import { ago, amount, keyed, make, offer, say, several, shortName } from "./dom.js";
import { get } from "./api.js";
import { paint } from "./colours.js";
import { sentence } from "./decisions.js";
import { outcome, table } from "./outcome.js";

const list = document.querySelector("#gangs");
const note = document.querySelector("#gangs-note");
const chosen = document.querySelector("#gang-queue");
let shown = null;

chosen.addEventListener("change", () => shown && draw());

export function showGangs(state) {
  shown = state;
  const queues = [...new Set(state.pending.map((gang) => gang.queue))].sort();
  offer(chosen, [["", "all queues"], ...queues.map((queue) => [queue, queue || "no queue"])]);
  draw();
}

function draw() {
  const gangs = shown.pending.filter((gang) => !chosen.value || gang.queue === chosen.value);
  keyed(list, gangs, (gang) => gang.gang, create, update);
  list.classList.toggle("long", gangs.length > 4);
  const more = shown.pending_gangs - shown.pending.length;
  say(note, gangs.length ? (more > 0 ? `and ${several(more, "more gang")}` : "") : "Nobody waits.");
}

function create(gang) {
  const head = make("summary", {},
    make("i", { className: "swatch" }),
    make("strong", { textContent: shortName(gang.gang), title: gang.gang }),
    make("span", { className: "chip" }),
    make("span", { className: "what" }),
    make("span", { className: "message" }));
  const body = make("div", { className: "explanation" });
  const details = make("details", {}, head, body);
  details.addEventListener("toggle", () => details.open && explain(details, gang.gang));
  const item = make("li", {}, details);
  item.dataset.gang = gang.gang;
  return item;
}

function update(item, gang) {
  paint(item, gang.queue);
  const size = gang.gpus ? several(gang.gpus, "GPU") : several(gang.pods, "pod");
  const place = gang.position ? ` · ${gang.position} of ${gang.waiting} in ${gang.queue}` : "";
  say(item.querySelector(".chip"), gang.stage);
  say(item.querySelector(".what"), `${size}${place} · ${ago(shown.time - gang.created)}`);
  say(item.querySelector(".message"), gang.message);
  const details = item.firstElementChild;
  if (details.open && details.cycle !== shown.cycle) explain(details, gang.gang);
}

async function explain(details, key) {
  details.cycle = shown.cycle;
  const body = details.lastElementChild;
  const path = `/v1/explain/gang/${key.split("/").map(encodeURIComponent).join("/")}`;
  try {
    const [it] = await get(`${path}?suggestions=false`);
    if (details.stage !== it.state) advise(details, path, it.state);
    body.replaceChildren(...told(it, details.advice));
  } catch {
    body.replaceChildren(make("p", { textContent: "It no longer exists." }));
  }
}

/** What would help takes a simulation: it is asked for once per stage, and shown when it comes. */
async function advise(details, path, stage) {
  details.stage = stage;
  details.advice = make("p", { textContent: "What would help is being simulated …" });
  try {
    const [it] = await get(path);
    if (details.stage === stage) details.advice.replaceWith((details.advice = advice(it)));
  } catch {
    details.stage = undefined;
  }
}

function advice(it) {
  if (!it.suggestions.length) {
    return make("p", { className: "command" }, "No small change was found that would start it: ",
      make("code", { textContent: `kai-py explain gang ${it.gang}` }));
  }
  const list = make("ul", { className: "advice" });
  for (const each of it.suggestions) {
    const cost = each.evicts.length ? ` – ${each.evicts.join(", ")} would lose pods` : "";
    list.append(make("li", {}, each.text + cost, " ", whatIf(each, it.gang)));
  }
  return make("div", {}, make("p", { textContent: "It would start, as simulated, with any of these:" }), list);
}

/** A button that shows what else the simulation of a suggestion gave; it changes nothing. */
function whatIf(suggestion, gang) {
  const button = make("button", { type: "button", textContent: "What if?", ariaExpanded: "false" });
  button.setAttribute("aria-label", `What if: ${suggestion.text}`);
  const others = suggestion.starts.filter((each) => each !== gang);
  button.addEventListener("click", () => {
    const open = button.ariaExpanded !== "true";
    button.ariaExpanded = String(open);
    if (open) button.after(outcome({ ...suggestion, starts: others }, "Starts too"));
    else button.nextElementSibling.remove();
  });
  return button;
}

function* told(it, advice) {
  yield make("p", { textContent: it.message });
  const priority = it.priority ? `, priority ${it.priority}` : "";
  yield make("p", {
    textContent: `${it.bound} of ${several(it.pods, "pod")} run, ${it.floor} must start together${priority}.`,
  });
  if (it.queues.length) yield path(it.queues);
  if (it.history.length) yield history(it);
  yield advice;
  const command = `kai-py explain gang ${it.gang}`;
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.addEventListener("click", () => navigator.clipboard?.writeText(command));
  yield make("p", { className: "command" }, "In a terminal: ",
    make("code", { textContent: command }), " ", copy);
}

function history(it) {
  const list = make("ol", { className: "history" });
  for (const each of it.history.slice(-5)) {
    const at = new Date(each.time * 1000).toLocaleTimeString("en-GB");
    list.append(make("li", { textContent: `${at} ${sentence(each)}` }));
  }
  return list;
}

function path(levels) {
  const head = ["Queue", "Held", "Deserved", "Fair share", "Max", "Requested"];
  return table("Its queues up to the root", head, levels.map((level) => [level.queue,
    ...[level.allocated, level.deserved, level.fair_share, level.maximum, level.requested].map(amount)]));
}
