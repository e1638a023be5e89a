// How did the queues fare? Held GPUs as lines, fair shares dashed, for the largest leaf queues.

import { amount, make } from "./dom.js";
import { hue } from "./colours.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260;
const NARROWEST = 300;
const RIGHT = 8;
const LEFT = 54;
const BOTTOM = 22;
const TOP = 8;
const MOST_LINES = 6;
const box = document.querySelector("#chart");
const legend = document.querySelector("#chart-legend");

export function showHistory(samples, queues) {
  const parents = new Set(queues.map((queue) => queue.parent));
  const leaves = queues.map((queue) => queue.queue).filter((name) => !parents.has(name));
  const names = largest(samples, leaves);
  const first = samples.at(0)?.time ?? 0;
  const last = Math.max(samples.at(-1)?.time ?? 0, first + 1);
  const values = samples.flatMap((s) => names.flatMap((n) => [s.allocated[n], s.fair_share[n]]));
  const top = nice(Math.max(1, ...values.filter(Number.isFinite)));
  const width = Math.max(box.clientWidth, NARROWEST);
  const x = (time) => LEFT + ((time - first) / (last - first)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - BOTTOM - TOP);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  svg.append(draw("title", {}, summary(samples, names)));
  for (const part of [0, 0.5, 1]) {
    const at = y(part * top);
    svg.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    svg.append(draw("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, amount(part * top)));
  }
  svg.append(draw("text", { x: LEFT, y: HEIGHT - 4 }, clock(first)));
  svg.append(draw("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, clock(last)));
  for (const name of names) {
    for (const [view, kind] of [["fair_share", "fair"], ["allocated", "held"]]) {
      const line = draw("path", { class: kind, d: steps(samples, view, name, x, y) });
      line.style.setProperty("--hue", `var(--${hue(name)})`);
      svg.append(line);
    }
  }
  box.replaceChildren(svg);
  legend.replaceChildren(...names.map((name) => {
    const key = make("span", { className: "key" }, make("i", { className: "swatch" }), name);
    key.style.setProperty("--hue", `var(--${hue(name)})`);
    return key;
  }));
}

function largest(samples, names) {
  const held = (name) => samples.reduce((sum, sample) => sum + (sample.allocated[name] ?? 0), 0);
  const sums = new Map(names.map((name) => [name, held(name)]));
  return names.toSorted((a, b) => sums.get(b) - sums.get(a)).slice(0, MOST_LINES);
}

/** Amounts hold until the next sample, so lines are steps. */
function steps(samples, view, name, x, y) {
  let path = "";
  for (const sample of samples) {
    const value = sample[view][name];
    if (!Number.isFinite(value)) continue;
    const at = x(sample.time).toFixed(1);
    path += path ? `H${at}V${y(value).toFixed(1)}` : `M${at} ${y(value).toFixed(1)}`;
  }
  return path;
}

function summary(samples, names) {
  const last = samples.at(-1);
  if (!last) return "No history yet";
  return names.map((name) => `${name} holds ${amount(last.allocated[name] ?? 0)}`
    + `, fair share ${amount(last.fair_share[name] ?? 0)}`).join("; ");
}

function nice(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].map((step) => step * unit).find((step) => step >= value);
}

function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

function draw(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}
