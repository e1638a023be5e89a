// How does a node look on a canvas? A square that fills from below in the colour of who holds most.

import { canvasColours } from "./colours.js";

const GAP = 1;
let colours = canvasColours();

/** Reload the colours of the theme. */
export function refreshColours() {
  colours = canvasColours();
}

/** Size a canvas, in pixels of the page, and give what to draw with. */
export function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

/** Draw a domain's nodes in rows of `columns` squares of `size`. */
export function squares(pen, domain, { left = 0, top = 0, size, columns }) {
  for (let index = 0; index < domain.nodes; index += 1) {
    const x = left + (index % columns) * size;
    const y = top + Math.floor(index / columns) * size;
    const owner = colours.owner(domain.owners[index]);
    square(pen, x, y, size - GAP, domain.fill[index], owner);
  }
}

/** Draw a frame around what was chosen. */
export function frame(pen, x, y, width, height) {
  pen.strokeStyle = colours.chosen;
  pen.lineWidth = 2;
  pen.strokeRect(x, y, width, height);
}

function square(pen, x, y, side, fill, owner) {
  pen.fillStyle = colours.free;
  pen.fillRect(x, y, side, side);
  if (fill === "x") {
    pen.fillStyle = colours.unusable;
    pen.fillRect(x, y + side / 2 - 1, side, 2);
    return;
  }
  const part = fill === "-" ? 0 : Number(fill) / 9;
  if (!part) return;
  const height = Math.max(2, part * side);
  pen.fillStyle = owner;
  pen.fillRect(x, y + side - height, side, height);
}
