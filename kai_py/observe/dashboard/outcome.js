// The outcome of a simulation: gangs that start, stop or lose pods, and the shares of queues.

import { amount, make, several } from "./dom.js";

const MOST_NAMED = 12;

/** Gangs by name: `starts`, `stops`, `evicts`; `queues` with pairs of amounts, now and then. */
export function outcome({ starts, stops, evicts, queues }, start = "Starts") {
  const told = make("div", { className: "outcome" });
  const rows = [[start, starts], ["Stops", stops], ["Loses pods", evicts]];
  for (const [what, gangs] of rows) {
    if (gangs.length) told.append(make("p", { textContent: `${what}: ${named(gangs)}.` }));
  }
  if (!told.children.length) told.append(make("p", { textContent: "No gang starts or loses pods." }));
  if (queues.length) {
    told.append(table("GPUs of queues, before and after", ["Queue", "Fair share", "Allocated"],
      queues.map((each) => [each.queue, change(each.fair_share), change(each.allocated)])));
  }
  return told;
}

/** The first names, and how many more there are. */
export function named(names, word = "more gang") {
  const more = names.length - MOST_NAMED;
  const first = names.slice(0, MOST_NAMED).join(", ");
  return more > 0 ? `${first} and ${several(more, word)}` : first;
}

function change([before, after]) {
  return before === after ? amount(before) : `${amount(before)} → ${amount(after)}`;
}

/** A small table; the first cell of a row is its head, the others are numbers. */
export function table(ariaLabel, head, rows) {
  const made = make("table", { className: "small", ariaLabel });
  made.createTHead().insertRow().append(
    ...head.map((text, place) =>
      make("th", { scope: "col", textContent: text, className: place ? "number" : "" })));
  const body = made.createTBody();
  for (const [name, ...values] of rows) {
    const row = body.insertRow();
    row.append(make("th", { scope: "row", textContent: name }));
    for (const value of values) row.append(make("td", { className: "number", textContent: value }));
  }
  // What scrolls takes the keys, and so has a name.
  return make("div", { className: "scrolled", tabIndex: 0, role: "group", ariaLabel }, made);
}
