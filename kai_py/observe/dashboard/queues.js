// The queue tree as a table: every number as text, and one bar per queue to compare them by eye.

import { amount, keyed, make, offer, say } from "./dom.js";
import { choose } from "./gangs.js";
import { paint } from "./colours.js";

const table = document.querySelector("#queues tbody");
const resource = document.querySelector("#resource");
const filter = document.querySelector("#filter");
const closed = new Set();
let shown = [];

resource.addEventListener("change", draw);

export function showQueues(queues) {
  shown = queues;
  const names = new Set(queues.flatMap((queue) => Object.keys(queue.allocated)));
  offer(resource, [...names].map((name) => [name, name === "gpu" ? "GPUs" : name]));
  draw();
}

/** Draw again what is shown, with the present filter. */
export function drawQueues() {
  draw();
}

/** The queues with the filter in their names, and those above them; all if none has it. */
function filtered() {
  const part = filter.value.toLowerCase();
  const parents = new Map(shown.map((queue) => [queue.queue, queue.parent]));
  const kept = new Set();
  for (const { queue } of shown) {
    if (!queue.toLowerCase().includes(part)) continue;
    for (let at = queue; at && !kept.has(at); at = parents.get(at)) kept.add(at);
  }
  return kept.size ? shown.filter(({ queue }) => kept.has(queue)) : shown;
}

function draw() {
  const rows = [...inTree(filtered())];
  const scales = scaleByDepth(rows);
  keyed(table, rows, (row) => row.queue.queue, create, (element, row) => {
    update(element, row, scales.get(row.depth));
  });
}

/** Queues below their parents, without those below a closed one. */
function* inTree(queues) {
  const below = Map.groupBy ? Map.groupBy(queues, (queue) => queue.parent) : groups(queues);
  function* walk(parent, depth) {
    for (const queue of below.get(parent) ?? []) {
      const children = (below.get(queue.queue) ?? []).length;
      yield { queue, depth, children };
      if (!closed.has(queue.queue)) yield* walk(queue.queue, depth + 1);
    }
  }
  yield* walk("", 0);
}

function groups(queues) {
  const found = new Map();
  for (const queue of queues) found.set(queue.parent, [...(found.get(queue.parent) ?? []), queue]);
  return found;
}

function views(queue) {
  const name = resource.value;
  const of = (view) => queue[view][name];
  return {
    deserved: of("deserved") === undefined ? 0 : of("deserved"),
    max: of("max") === undefined ? null : of("max"),
    fair: of("fair_share") ?? 0,
    held: of("allocated") ?? 0,
    requested: of("requested") ?? 0,
  };
}

/** Bars of one level of the tree share a scale. */
function scaleByDepth(rows) {
  const scales = new Map();
  for (const { queue, depth } of rows) {
    const view = views(queue);
    const most = Math.max(view.deserved ?? 0, view.max ?? 0, view.fair, view.held, 1e-9);
    scales.set(depth, Math.max(scales.get(depth) ?? 0, most));
  }
  return scales;
}

function create({ queue }) {
  const toggle = make("button", { type: "button", className: "toggle" });
  toggle.addEventListener("click", () => {
    if (!closed.delete(queue.queue)) closed.add(queue.queue);
    draw();
  });
  const bar = make("div", { className: "bar", "aria-hidden": "true" });
  for (const part of ["deserved", "held", "borrowed", "fair", "max"]) {
    bar.append(make("i", { className: part }));
  }
  const name = make("span", { className: "name" }, toggle, make("i", { className: "swatch" }));
  const gangs = make("button", { type: "button", className: "link" },
    make("span", { textContent: queue.queue }));
  gangs.title = `Show the gangs of ${queue.queue}`;
  gangs.addEventListener("click", () => choose(queue.queue));
  name.append(gangs);
  const problem = make("p", { className: "problem" });
  const row = make("tr", {}, make("th", { scope: "row" }, name, problem));
  row.append(make("td", { className: "share" }, bar));
  for (let column = 0; column < 6; column += 1) row.append(make("td", { className: "number" }));
  row.lastElementChild.append(make("span"), make("span", { className: "unseen" }));
  row.dataset.queue = queue.queue;
  return row;
}

function update(row, { queue, depth, children }, scale) {
  const view = views(queue);
  paint(row, queue.queue);
  row.style.setProperty("--depth", depth);
  const toggle = row.querySelector(".toggle");
  const open = !closed.has(queue.queue);
  toggle.hidden = children === 0;
  toggle.setAttribute("aria-expanded", String(open));
  toggle.setAttribute("aria-label", `${queue.queue}: ${children} queues below`);
  const numbers = [view.held, view.deserved, view.fair, view.max, view.requested];
  const cells = row.querySelectorAll("td.number");
  numbers.forEach((value, column) => say(cells[column], amount(value)));
  const stages = Object.entries(queue.pending_by_stage).map(([s, n]) => `${n} ${s}`).join(", ");
  const [waiting, why] = cells[5].children;
  say(waiting, queue.pending_gangs ? amount(queue.pending_gangs) : "");
  say(why, stages && `: ${stages}`);
  cells[5].title = stages;
  row.classList.toggle("waits", queue.pending_gangs > 0);
  const problem = row.querySelector(".problem");
  problem.hidden = !queue.problems.length;
  say(problem, queue.problems.join("; "));
  drawBar(row.querySelector(".bar"), view, scale);
}

function drawBar(bar, view, scale) {
  const at = (value) => `${Math.min((100 * value) / scale, 100)}%`;
  const [deserved, held, borrowed, fair, max] = bar.children;
  const guaranteed = Math.min(view.deserved ?? view.held, scale);
  deserved.style.width = at(view.deserved ?? scale);
  held.style.width = at(Math.min(view.held, guaranteed));
  borrowed.style.left = at(guaranteed);
  borrowed.style.width = at(Math.max(view.held - guaranteed, 0));
  fair.style.left = at(view.fair);
  max.hidden = view.max === null;
  max.style.left = at(view.max ?? 0);
}
