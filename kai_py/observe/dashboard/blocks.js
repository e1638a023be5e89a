// Many domains: one canvas with a block of squares for each, so that all are seen at once.

import { amount, several } from "./dom.js";
import { frame, prepare, squares } from "./squares.js";

const SIZE = 6;
const SPACE = 4;

/** Make a canvas; `open(domain)` is called with the block clicked, `name` shows what is pointed at. */
export function createBlocks(open, name) {
  const canvas = document.createElement("canvas");
  canvas.className = "blocks";
  canvas.setAttribute("aria-hidden", "true");
  canvas.addEventListener("click", (event) => {
    const domain = at(canvas, event);
    if (domain) open(domain.name);
  });
  canvas.addEventListener("pointermove", (event) => {
    const domain = at(canvas, event);
    name(domain && `${domain.name}: ${amount(domain.allocated)} of ${several(domain.gpus, "GPU")} allocated`);
  });
  canvas.addEventListener("pointerleave", () => name(null));
  return canvas;
}

/** Draw the blocks of `domains`, if they differ from what is drawn. */
export function showBlocks(canvas, domains, chosen, width) {
  const most = Math.max(...domains.map((domain) => domain.nodes));
  const columns = Math.ceil(Math.sqrt(most));
  const across = columns * SIZE + SPACE;
  const down = Math.ceil(most / columns) * SIZE + SPACE;
  const perRow = Math.max(1, Math.floor(width / across));
  canvas.layout = { domains, across, down, perRow };
  const seen = `${width} ${chosen} ${domains.map((domain) => `${domain.fill}${domain.owners}`)}`;
  if (canvas.seen === seen) return;
  canvas.seen = seen;
  const height = Math.ceil(domains.length / perRow) * down;
  const pen = prepare(canvas, perRow * across, height);
  domains.forEach((domain, place) => {
    const left = (place % perRow) * across + 1;
    const top = Math.floor(place / perRow) * down + 1;
    squares(pen, domain, { left, top, size: SIZE, columns });
    if (domain.name === chosen) frame(pen, left - 1, top - 1, across - SPACE + 1, down - SPACE + 1);
  });
}

function at(canvas, event) {
  const { domains, across, down, perRow } = canvas.layout;
  const column = Math.floor(event.offsetX / across);
  if (column >= perRow) return undefined;
  return domains[Math.floor(event.offsetY / down) * perRow + column];
}
