// The GPUs of a node and their claims: a cell per GPU, partitions inside it; opened, every device by name.

import { amount, make, say, several, shortName } from "./dom.js";
import { question } from "./what-if.js";
import { paint, shade } from "./colours.js";

const PLACES = 8;
const MOST_ASKED = 4;

export function createNode(node) {
  const cells = make("span", { className: "cells", "aria-hidden": "true" });
  const head = make("summary", {},
    make("span", { className: "node-name", textContent: node.node }),
    cells,
    make("span", { className: "count" }),
    make("span", { className: "unseen" }));
  const details = make("details", {}, head, make("div", {
    className: "devices scroll", tabIndex: 0, role: "group", ariaLabel: `Devices of ${node.node}` }));
  details.addEventListener("toggle", () => details.open && tell(details));
  return make("li", {}, details);
}

export function showNode(item, node) {
  const details = item.firstElementChild;
  const seen = JSON.stringify(node);
  if (details.seen === seen) return;
  details.seen = seen;
  details.node = node;
  const [, cells, count, spoken] = details.firstElementChild.children;
  cells.replaceChildren(...(node.devices.some(isGpu) ? published(node) : counted(node)));
  say(count, `${amount(node.allocated)}/${amount(node.gpus)}`);
  say(spoken, told(node));
  item.classList.toggle("unusable", !node.ready || node.cordoned);
  item.title = marks(node);
  if (details.open) tell(details);
}

function isGpu(device) {
  return device.kind !== "channel" && device.kind !== "daemon";
}

/** Conditions and taints that keep pods off a node. */
function marks(node) {
  return [!node.ready && "not ready", node.cordoned && "cordoned", ...node.taints]
    .filter(Boolean).join(", ");
}

function told(node) {
  const held = node.occupants.map((it) => `${shortName(it.gang)}: ${several(it.gpus, "GPU")}`);
  return [marks(node), held.length ? held.join(", ") : "free"].filter(Boolean).join("; ");
}

/** Devices by name; a whole GPU has its partitions inside. */
function published(node) {
  const devices = node.devices.filter(isGpu);
  const names = new Set(devices.map((device) => device.device));
  const parts = Map.groupBy
    ? Map.groupBy(devices, (device) => device.parent)
    : devices.reduce((m, d) => m.set(d.parent, [...(m.get(d.parent) ?? []), d]), new Map());
  return devices.filter((device) => !names.has(device.parent)).map((device) => {
    const below = (parts.get(device.device) ?? []).filter((part) => part.claims.length);
    return below.length ? divided(device, below) : cell(device);
  });
}

function divided(device, below) {
  const box = make("span", { className: "gpu divided" }, ...below.map(cell));
  box.title = `${device.device}: ${several(below.length, "partition")} in use`;
  return box;
}

function cell(device) {
  const holder = device.claims.find((each) => !each.admin_access);
  const box = make("span", { className: `gpu ${device.status.toLowerCase()}` });
  const who = device.claims.map((each) => each.gang || each.claim).join(", ");
  box.title = [device.device, device.kind, device.status, device.detail, who]
    .filter(Boolean).join(" · ");
  if (holder) hold(box, holder.queue, holder.gang || holder.claim);
  return box;
}

/** GPUs of a device plugin have no names: pods are drawn side by side, each as wide as its share. */
function counted(node) {
  const total = Math.max(Math.round(node.gpus), 1);
  const box = make("span", { className: "gpus" });
  box.style.setProperty("--gpus", total);
  box.style.setProperty("--places", PLACES);
  const others = node.other_schedulers ? [{ gang: "", queue: "", gpus: node.other_schedulers, pods: 0 }] : [];
  for (const it of [...node.occupants, ...others].filter((each) => each.gpus > 0)) {
    const part = make("span", { className: "gpu allocated" });
    part.style.width = `${(100 * it.gpus) / total}%`;
    part.title = `${it.gang || "other schedulers"}: ${several(it.gpus, "GPU")}`;
    hold(part, it.queue, it.gang);
    box.append(part);
  }
  return [box];
}

function hold(box, queue, gang) {
  paint(box, queue);
  box.dataset.shade = shade(gang);
  box.textContent = shortName(gang).slice(0, 1).toUpperCase();
}

function tell(details) {
  const { node } = details;
  const rows = node.devices.length
    ? node.devices.filter((device) => device.status !== "CountersExhausted").map(deviceRow)
    : node.occupants.map((it) => [`${amount(it.gpus)} GPU`, "device plugin",
      it.terminating ? "Terminating" : "Allocated", several(it.pods, "pod"), shortName(it.gang), it.queue]);
  const table = make("table", { className: "small", ariaLabel: `Devices of ${node.node}` });
  table.createTHead().insertRow().append(
    ...["Device", "Kind", "Status", "Claim", "Gang", "Queue"].map(
      (text) => make("th", { scope: "col", textContent: text })));
  const body = table.createTBody();
  for (const row of rows) {
    body.insertRow().append(...row.map((text) => make("td", { textContent: text || "–" })));
  }
  details.lastElementChild.replaceChildren(
    rows.length ? table : make("p", { className: "note", textContent: "No pods." }),
    questions(node));
}

/** Buttons that ask what would happen without this node, or without a gang on it. */
function questions(node) {
  const gangs = node.occupants.slice(0, MOST_ASKED).map(({ gang }) =>
    question(`What if ${shortName(gang)} ended?`, { remove: gang }));
  return make("p", { className: "questions" },
    question(`What if ${node.node} were drained?`, { drain: node.node }), ...gangs);
}

function deviceRow(device) {
  const joined = (of) => [...new Set(device.claims.map(of))].filter(Boolean).join(", ");
  return [device.device, device.kind === "gpu" ? device.product : device.kind,
    device.detail ? `${device.status} (${device.detail})` : device.status,
    joined((holder) => holder.claim), joined((holder) => shortName(holder.gang)),
    joined((holder) => holder.queue)];
}
