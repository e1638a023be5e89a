// Who waits, and why; who runs, and where? One line per gang; opened, it tells its whole explanation.

import { ago, amount, keyed, make, offer, say, several, shortName } from "./dom.js";
import { question } from "./what-if.js";
import { get } from "./api.js";
import { paint } from "./colours.js";
import { sentence } from "./decisions.js";
import { named, outcome, table } from "./outcome.js";

const MOST_RUNNING = 50;
const MOST_PENDING = 100;
const list = document.querySelector("#gangs");
const note = document.querySelector("#gangs-note");
const chosen = document.querySelector("#gang-queue");
const which = document.querySelector("#gang-state");
const search = document.querySelector("#filter");
const namespace = document.querySelector("#namespace");
const others = document.querySelector("#others");
let shown = null;
let wanted = 0;

for (const select of [chosen, which]) select.addEventListener("change", () => shown && draw());

/** Show the gangs of a queue. */
export function choose(queue) {
  chosen.value = queue;
  search.value = "";
  document.querySelector("#gangs-card").scrollIntoView({ block: "nearest" });
  chosen.focus({ preventScroll: true });
  if (shown) draw();
}

export function showGangs(state) {
  shown = state;
  const queues = state.queues.map((queue) => queue.queue);
  const unknown = state.pending.map((gang) => gang.queue).filter((queue) => !queues.includes(queue));
  const names = [...queues, ...new Set(unknown)];
  showOthers(state.others);
  const namespaces = [...new Set(state.pending.map((gang) => gang.gang.split("/")[0]))].sort();
  keyed(document.querySelector("#namespaces"), namespaces, (name) => name,
    (name) => make("option", { value: name }), () => {});
  offer(chosen, [["", "all queues"], ...names.map((queue) => [queue, queue || "no queue"])]);
  draw();
}

/** Draw again what is shown, with the present filter. */
export function drawGangs() {
  if (shown) draw();
}

/** Show a gang with its explanation, wherever it is. */
export async function openGang(key) {
  if (!shown) return;
  chosen.value = "";
  which.value = shown.pending.some((gang) => gang.gang === key) ? "" : "running";
  search.value = key;
  await draw();
  const details = list.querySelector(`[data-gang="${CSS.escape(key)}"] details`);
  if (!details) return;
  details.open = true;
  details.scrollIntoView({ block: "nearest" });
  details.firstElementChild.focus({ preventScroll: true });
}

function showOthers(sums) {
  others.hidden = !sums;
  if (!sums) return;
  const gangs = several(sums.running + sums.pending, "gang");
  say(others, `Other namespaces: ${gangs}, ${amount(sums.pending)} pending, ${several(sums.gpus, "GPU")} allocated.`);
}

/** One's own gangs first. */
function ownFirst(gangs) {
  const own = `${namespace.value}/`;
  const isOwn = (gang) => (namespace.value && gang.gang.startsWith(own) ? 0 : 1);
  return gangs.toSorted((a, b) => isOwn(a) - isOwn(b));
}

async function draw() {
  const number = (wanted += 1);
  const runs = which.value === "running";
  const found = runs ? await running() : waiting();
  if (number !== wanted) return;
  keyed(list, found.gangs, (gang) => gang.gang, create, update);
  list.classList.toggle("long", found.gangs.length > 4);
  const more = found.total - found.gangs.length;
  const none = search.value || chosen.value ? "No such gang." : `No gang is ${runs ? "running" : "pending"}.`;
  say(note, found.gangs.length ? (more > 0 ? `and ${several(more, "more gang")}` : "") : none);
}

function waiting() {
  const part = search.value.toLowerCase();
  const gangs = shown.pending.filter((gang) =>
    (!chosen.value || gang.queue === chosen.value) && gang.gang.toLowerCase().includes(part));
  const unseen = shown.pending_gangs - shown.pending.length - (shown.others?.pending ?? 0);
  return { gangs: ownFirst(gangs).slice(0, MOST_PENDING), total: gangs.length + (part || chosen.value ? 0 : unseen) };
}

async function running() {
  const query = { queue: chosen.value, search: search.value, limit: MOST_RUNNING };
  if (namespace.value) query.namespace = namespace.value;
  try {
    const page = await get(`/v1/gangs?${new URLSearchParams(query)}`);
    return { ...page, gangs: ownFirst(page.gangs) };
  } catch {
    return { gangs: [], total: 0 };
  }
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
  item.querySelector(".chip").hidden = !gang.stage;
  say(item.querySelector(".chip"), gang.stage ?? "");
  say(item.querySelector(".what"), gang.stage ? line(gang) : place(gang));
  say(item.querySelector(".message"), gang.message ?? named(gang.nodes, "more node"));
  const details = item.firstElementChild;
  if (details.open && details.cycle !== shown.cycle) explain(details, gang.gang);
}

function size(gang) {
  return gang.gpus ? several(gang.gpus, "GPU") : several(gang.pods, "pod");
}

/** The line of a pending gang, next to its stage. */
function line(gang) {
  const position = gang.queue_position ? ` · ${gang.queue_position} of ${gang.queue_length} in ${gang.queue}` : "";
  return `${size(gang)}${position} · ${ago(shown.time - gang.created)}`;
}

/** The line of a running gang. */
function place(gang) {
  const pods = gang.bound < gang.pods ? ` · ${gang.bound} of ${several(gang.pods, "pod")}` : "";
  const since = gang.started ? ago(shown.time - gang.started) : "starting";
  const starting = gang.starting ? ` · ${gang.starting} starting` : "";
  return `${size(gang)}${pods}${starting} · ${gang.queue} · ${since}`;
}

async function explain(details, key) {
  details.cycle = shown.cycle;
  const body = details.lastElementChild;
  const path = `/v1/explain/gang/${key.split("/").map(encodeURIComponent).join("/")}`;
  try {
    const [it] = await get(`${path}?suggestions=false`);
    if (it.message && details.stage !== it.state) advise(details, path, it.state);
    body.replaceChildren(...told(it, details.advice));
  } catch {
    body.replaceChildren(make("p", { textContent: "It no longer exists." }));
  }
}

/** What would help takes a simulation: it is asked for once per stage, and shown when it comes. */
async function advise(details, path, stage) {
  details.stage = stage;
  details.advice = make("p", { textContent: "Simulating changes that would help …" });
  try {
    const [it] = await get(path);
    if (details.stage === stage) details.advice.replaceWith((details.advice = advice(it)));
  } catch {
    details.stage = undefined;
  }
}

function advice(it) {
  const unfinished = it.is_search_unfinished ? "The search was not finished in time; there may be more. " : "";
  if (!it.suggestions.length) {
    return make("p", { className: "command" }, unfinished || "No single change was found that lets it start: ",
      make("code", { textContent: `kai-py explain gang ${it.gang}` }));
  }
  const list = make("ul", { className: "advice" });
  for (const each of it.suggestions) {
    const effects = Object.fromEntries(each.effects || []);
    const named = each.evicts.map((gang) => (effects[gang] ? `${gang} (${effects[gang]})` : gang));
    const cost = named.length ? ` – ${named.join(", ")} would lose pods` : "";
    list.append(make("li", {}, each.text + cost, " ", whatIf(each, it.gang)));
  }
  const head = make("p", { textContent: "In simulation, any of these changes lets it start:" });
  return make("div", {}, head, list, make("p", { textContent: unfinished }));
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

/** What the pods on nodes do; some may not have started yet. */
function activity(it) {
  return it.starting ? `bound (${it.starting} not started yet)` : "running";
}

function* told(it, advice) {
  if (it.message) yield make("p", { textContent: it.message });
  const priority = it.priority ? `, priority ${it.priority}` : "";
  yield make("p", {
    textContent: `${it.bound} of ${several(it.pods, "pod")} ${activity(it)}, minMember ${it.min_members}${priority}.`,
  });
  if (it.queues.length) yield path(it.queues);
  if (it.history.length) yield history(it);
  yield it.message ? advice : make("p", { className: "questions" },
    question("What if it ended?", { remove: it.gang }));
  const command = `kai-py explain gang ${it.gang}`;
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.addEventListener("click", () => navigator.clipboard?.writeText(command));
  yield make("p", { className: "command" }, "In a terminal: ",
    make("code", { textContent: command }), " ", copy, " ",
    make("a", { href: `#gang=${encodeURIComponent(it.gang)}`, textContent: "Link" }));
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
  const head = ["Queue", "Allocated", "Deserved", "Fair share", "Max", "Requested"];
  return table("Its queue and the queues above it", head, levels.map((level) => [level.queue,
    ...[level.allocated, level.deserved, level.fair_share, level.maximum, level.requested].map(amount)]));
}
