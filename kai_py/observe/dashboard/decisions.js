// Decisions, newest first: placements, evictions with their rule, pending gangs.

import { make, several, shortName } from "./dom.js";
import { paint } from "./colours.js";

const MOST_SHOWN = 300;
const list = document.querySelector("#decisions");
const filter = document.querySelector("#filter");
const chosen = document.querySelector("#decision-kind");
const WORDS = {
  placed: "placed", evicted: "evicted", nominated: "nominated", pending: "pending",
  deleted: "deleted",
};

chosen.addEventListener("change", filterDecisions);

/** Show those of the chosen kind whose gang or queue has the filter in its name. */
export function filterDecisions() {
  for (const item of list.children) item.hidden = isHidden(item);
}

function isHidden(item) {
  const part = filter.value.toLowerCase();
  const isOther = Boolean(chosen.value) && item.dataset.kind !== chosen.value;
  return isOther || !item.dataset.names.includes(part);
}

export function showDecision(decision) {
  const item = make("li", {},
    make("time", {
      dateTime: new Date(decision.time * 1000).toISOString(),
      textContent: new Date(decision.time * 1000).toLocaleTimeString("en-GB"),
    }),
    make("span", { className: "chip", textContent: WORDS[decision.kind] }),
    make("i", { className: "swatch" }),
    make("strong", { textContent: shortName(decision.gang), title: decision.gang }),
    make("span", { className: "message", textContent: sentence(decision) }));
  item.dataset.kind = decision.kind;
  item.dataset.names = `${decision.gang} ${decision.queue}`.toLowerCase();
  paint(item, decision.queue);
  item.hidden = isHidden(item);
  list.prepend(item);
  while (list.children.length > MOST_SHOWN) list.lastElementChild.remove();
}

export function sentence(it) {
  const pods = several(it.pods.length, "pod");
  switch (it.kind) {
    case "placed":
      return `${pods} on ${nodes(it.nodes)}${it.action === "allocate" ? "" : `, by ${it.action}`}`;
    case "evicted":
      return `${pods} from ${nodes(it.nodes)}, by ${it.action} for ${shortName(it.preemptor)}: ${it.message}`;
    case "nominated":
      return `${pods} on ${nodes(it.nodes)} once terminating pods have ended`;
    case "pending":
      return `${it.stage}: ${it.message}`;
    default:
      return "was deleted while pending";
  }
}

function nodes(names) {
  return names.length <= 3 ? names.join(", ") : `${names.length} nodes`;
}
