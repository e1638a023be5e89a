// Few domains: a tile for each, a button with its name, its use and its nodes as squares.

import { amount, keyed, make, say, several } from "./dom.js";
import { prepare, squares } from "./squares.js";

const MANY_NODES = 400;
const byTile = new WeakMap();

/** Draw the tiles of `domains` into `parent`; `open(domain, node)` is called with what is clicked. */
export function showTiles(parent, domains, chosen, open) {
  keyed(parent, domains, (domain) => domain.name, (domain) => create(domain, open), (tile, domain) => {
    update(tile, domain);
    tile.setAttribute("aria-pressed", String(domain.name === chosen));
  });
}

/** Forget what was drawn, so that it is redrawn. */
export function forgetTiles(parent) {
  for (const tile of parent.querySelectorAll(".tile")) tile.seen = null;
}

function create(domain, open) {
  const tile = make("button", { type: "button", className: "tile" },
    make("span", { className: "tile-head" }, make("strong"), make("span", { className: "count" })),
    make("canvas", { "aria-hidden": "true" }));
  tile.addEventListener("click", (event) => {
    const isNode = event.target.tagName === "CANVAS";
    open(domain.name, isNode ? nodeAt(event, tile, byTile.get(tile)) : 0);
  });
  return tile;
}

function update(tile, domain) {
  byTile.set(tile, domain);
  const [name, count] = tile.firstElementChild.children;
  const title = domain.name.slice(domain.name.lastIndexOf("/") + 1) || "all nodes";
  say(name, title);
  say(count, `${amount(domain.allocated)}/${amount(domain.gpus)}`);
  const held = `${amount(domain.allocated)} of ${several(domain.gpus, "GPU")} allocated`;
  tile.setAttribute("aria-label", `${title}: ${held}, ${several(domain.nodes, "node")}`);
  const seen = `${domain.fill} ${domain.owners}`;
  if (tile.seen === seen) return;
  tile.seen = seen;
  const { size, columns } = grid(tile.parentElement, domain);
  const rows = Math.ceil(domain.nodes / columns);
  const pen = prepare(tile.lastElementChild, columns * size, rows * size);
  squares(pen, domain, { size, columns });
}

function grid(parent, domain) {
  const size = domain.nodes > MANY_NODES ? 9 : 13;
  const widest = Math.floor(((parent?.clientWidth || window.innerWidth - 60) - 24) / size);
  const wanted = domain.nodes <= 64 ? 8 : Math.ceil(Math.sqrt(domain.nodes * 3));
  return { size, columns: Math.max(1, Math.min(wanted, widest)) };
}

function nodeAt(event, tile, domain) {
  const { size, columns } = grid(tile.parentElement, domain);
  const column = Math.floor(event.offsetX / size);
  return Math.min(Math.floor(event.offsetY / size) * columns + column, domain.nodes - 1);
}
