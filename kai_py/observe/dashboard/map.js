// Where are the GPUs, and who holds them? A small cluster is shown node by node; a larger one by
// domain, as tiles or, where those are many, as blocks of one canvas. A domain opens into its nodes.

import { amount, keyed, make, offer, say, several } from "./dom.js";
import { createBlocks, showBlocks } from "./blocks.js";
import { forgetTiles, showTiles } from "./tiles.js";
import { onClose, openAll, openDomain, openedDomain, refreshPage } from "./pages.js";
import { paint } from "./colours.js";
import { refreshColours } from "./squares.js";

const SMALL = 40;
const MANY = 48;
const map = document.querySelector("#map");
const note = document.querySelector("#map-note");
const owners = document.querySelector("#owners");
const chooser = document.querySelector("#domain");
let state = null;

chooser.addEventListener("change", () => chooser.value && openByHand(chooser.value.slice(1)));
onClose(() => {
  draw();
  chooser.value = "";
  chooser.focus();
});
new ResizeObserver(() => state && draw()).observe(map);

/** Redraw everything in the colours of the theme. */
export function repaint() {
  refreshColours();
  if (!state) return;
  forgetTiles(map);
  for (const canvas of map.querySelectorAll(".blocks")) canvas.seen = null;
  draw();
}

export function showMap(next) {
  state = next;
  showOwners();
  draw();
  if (isSmall()) openAll(state.domains);
  else refreshPage();
}

function isSmall() {
  return state.nodes <= SMALL;
}

function draw() {
  tellNote(null);
  chooser.parentElement.hidden = isSmall() || state.domains.length < 2;
  if (!isSmall()) {
    const named = state.domains.map((domain) => [`=${domain.name}`, choice(domain)]);
    offer(chooser, [["", "choose …"], ...named]);
  }
  keyed(map, isSmall() ? [] : groups(), (group) => group.name, create, update);
}

function choice(domain) {
  return `${domain.name || "without domain"} (${several(domain.nodes, "node")})`;
}

function openByHand(domain, place = 0) {
  openDomain(domain, place, true);
  draw();
}

function tellNote(text) {
  const levels = state.levels.map((level) => level.slice(level.lastIndexOf("/") + 1)).join(", ");
  const unusable = state.domains.reduce((sum, domain) => sum + domain.unusable, 0);
  const all = `${several(state.nodes, "node")}${levels ? ` by ${levels}` : ""}`;
  say(note, text ?? `${all}${unusable ? `, ${unusable} cordoned or not ready` : ""}`);
}

function showOwners() {
  const held = new Map();
  for (const domain of state.domains) {
    for (const [queue, gpus] of Object.entries(domain.by_queue)) {
      held.set(queue, (held.get(queue) ?? 0) + gpus);
    }
  }
  const named = state.owners.filter((owner) => held.get(owner) > 0);
  const create = () =>
    make("span", { className: "key" }, make("i", { className: "swatch" }), make("span"));
  keyed(owners, named, (owner) => owner, create, (key, owner) => {
    paint(key, owner);
    say(key.lastElementChild, `${owner || "others"} ${amount(held.get(owner))}`);
  });
}

/** Domains by the part of their path above the finest level. */
function groups() {
  const found = new Map();
  for (const domain of state.domains) {
    const name = domain.name.slice(0, Math.max(domain.name.lastIndexOf("/"), 0));
    if (!found.has(name)) found.set(name, { name, domains: [] });
    found.get(name).domains.push(domain);
  }
  return [...found.values()];
}

function create() {
  return make("section", { className: "group" }, make("h3"), make("div"));
}

function update(section, group) {
  const [title, body] = section.children;
  const sum = (view) => group.domains.reduce((all, domain) => all + domain[view], 0);
  title.hidden = !group.name;
  const held = `${amount(sum("allocated"))} of ${several(sum("gpus"), "GPU")} allocated`;
  say(title, `${group.name}: ${several(group.domains.length, "domain")}, ${held}`);
  if (state.domains.length <= MANY) {
    body.className = "tiles";
    showTiles(body, group.domains, openedDomain(), openByHand);
    return;
  }
  if (!body.firstElementChild) body.append(createBlocks(openByHand, tellNote));
  showBlocks(body.firstElementChild, group.domains, openedDomain(), map.clientWidth);
}
