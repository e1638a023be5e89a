// Which colour stands for which queue? Its place among the queues; the style sheet has the shades.

const HUES = 10;
const SHADES = 3;
const OTHERS = "others";
const gangs = new Map();
const probe = document.createElement("i");

let places = new Map();
let parents = new Set();
let owners = [];

/** Learn the queues of a state; those with queues below them take what colours are left. */
export function know(state) {
  parents = new Set(state.queues.map((queue) => queue.parent));
  const isParent = (queue) => (parents.has(queue.queue) ? 1 : 0);
  const ordered = state.queues.toSorted((a, b) => isParent(a) - isParent(b));
  places = new Map(ordered.map((queue, place) => [queue.queue, place]));
  owners = state.owners;
}

/** The name of the queue's colour in the style sheet. */
export function hue(queue) {
  const place = places.get(queue);
  const isLeft = place < HUES || !parents.has(queue);
  return place === undefined || !isLeft ? OTHERS : `q${place % HUES}`;
}

/** Paint an element in the queue's colour. */
export function paint(element, queue) {
  element.style.setProperty("--hue", `var(--${hue(queue)})`);
}

/** Gangs of a queue take turns in three shades of its colour. */
export function shade(gang) {
  if (!gangs.has(gang)) gangs.set(gang, gangs.size % SHADES);
  return gangs.get(gang);
}

/** Colours as a canvas needs them; `owner` by place among the owners of a domain. */
export function canvasColours() {
  const names = [...Array(HUES).keys()].map((place) => `q${place}`);
  const hues = new Map([...names, OTHERS].map((name) => [name, resolved(name)]));
  return {
    owner: (place) => hues.get(hue(owners[place])),
    free: resolved("cell"),
    unusable: resolved("bad"),
    chosen: resolved("ink"),
  };
}

/** A colour of the style sheet as it is in the theme of the moment. */
function resolved(name) {
  document.body.append(probe);
  probe.style.color = `var(--${name})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}
