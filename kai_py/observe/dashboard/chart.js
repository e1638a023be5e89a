// How did the queues fare? Held GPUs as lines, fair shares dashed, for the largest leaf queues; below
// them Jain's fairness index of what all leaf queues hold over what they are entitled to.

import { amount, make } from "./dom.js";
import { hue } from "./colours.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260;
const LOW = 90;
const NARROWEST = 300;
const RIGHT = 8;
const LEFT = 54;
const BOTTOM = 22;
const TOP = 8;
const MOST_LINES = 6;
const box = document.querySelector("#chart");
const fairness = document.querySelector("#fairness");
const legend = document.querySelector("#chart-legend");

export function showHistory(samples, queues) {
  const parents = new Set(queues.map((queue) => queue.parent));
  const leaves = queues.map((queue) => queue.queue).filter((name) => !parents.has(name));
  const names = largest(samples, leaves);
  const lines = names.flatMap((name) => [["fair_share", "fair"], ["allocated", "held"]].map(
    ([view, kind]) => ({ kind, hue: `var(--${hue(name)})`, at: (sample) => sample[view][name] })));
  const values = samples.flatMap((sample) => lines.map((line) => line.at(sample)));
  const top = nice(Math.max(1, ...values.filter(Number.isFinite)));
  plot(box, samples, lines, { top, height: HEIGHT, title: summary(samples, names) });
  const index = (sample) => jain(sample, leaves);
  const last = samples.length ? index(samples.at(-1)) : 1;
  plot(fairness, samples, [{ kind: "held", hue: "var(--accent)", at: index }],
    { top: 1, height: LOW, title: `Jain's fairness index, now ${amount(last)}` });
  legend.replaceChildren(...names.map((name) => {
    const key = make("span", { className: "key" }, make("i", { className: "swatch" }), name);
    key.style.setProperty("--hue", `var(--${hue(name)})`);
    return key;
  }));
}

/** Lines over time: `at` gives the value of a line in a sample. */
function plot(target, samples, lines, { top, height, title }) {
  const first = samples.at(0)?.time ?? 0;
  const last = Math.max(samples.at(-1)?.time ?? 0, first + 1);
  const width = Math.max(target.clientWidth, NARROWEST);
  const x = (time) => LEFT + ((time - first) / (last - first)) * (width - LEFT - RIGHT);
  const y = (value) => TOP + (1 - value / top) * (height - BOTTOM - TOP);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.append(draw("title", {}, title));
  for (const part of [0, 0.5, 1]) {
    const at = y(part * top);
    svg.append(draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    svg.append(draw("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, amount(part * top)));
  }
  svg.append(draw("text", { x: LEFT, y: height - 4 }, clock(first)));
  svg.append(draw("text", { x: width - RIGHT, y: height - 4, "text-anchor": "end" }, clock(last)));
  for (const line of lines) {
    const path = draw("path", { class: line.kind, d: steps(samples, line.at, x, y) });
    path.style.setProperty("--hue", line.hue);
    svg.append(path);
  }
  target.replaceChildren(svg);
}

/** (sum r)^2 / (n sum r^2) of held over entitled; 1 where all get as much of their due (R. Jain 1984). */
function jain({ allocated, fair_share: due }, names) {
  const parts = names.filter((name) => due[name] > 0).map((name) => (allocated[name] ?? 0) / due[name]);
  const sum = parts.reduce((all, part) => all + part, 0);
  const squares = parts.reduce((all, part) => all + part * part, 0);
  return squares ? (sum * sum) / (parts.length * squares) : 1;
}

function largest(samples, names) {
  const held = (name) => samples.reduce((sum, sample) => sum + (sample.allocated[name] ?? 0), 0);
  const sums = new Map(names.map((name) => [name, held(name)]));
  return names.toSorted((a, b) => sums.get(b) - sums.get(a)).slice(0, MOST_LINES);
}

/** Amounts hold until the next sample, so lines are steps. */
function steps(samples, at, x, y) {
  let path = "";
  for (const sample of samples) {
    const value = at(sample);
    if (!Number.isFinite(value)) continue;
    const [right, up] = [x(sample.time).toFixed(1), y(value).toFixed(1)];
    path += path ? `H${right}V${up}` : `M${right} ${up}`;
  }
  return path;
}

function summary(samples, names) {
  const last = samples.at(-1);
  if (!last) return "No history yet";
  return names.map((name) => `${name}: ${amount(last.allocated[name] ?? 0)} allocated`
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
