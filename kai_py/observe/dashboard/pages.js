// The nodes of domains, close up: a page of one that was opened, or all of a small cluster.

import { amount, keyed, make, say } from "./dom.js";
import { createNode, showNode } from "./nodes.js";
import { get } from "./api.js";

export const PAGE = 48;
const zoom = document.querySelector("#zoom");
let open = null;
let closed = () => {};

/** The domain that is open; null if none is. */
export function openedDomain() {
  return open?.domain ?? null;
}

/** `action` is called with the domain that was closed. */
export function onClose(action) {
  closed = action;
}

/** Show every node of a small cluster. */
export async function openAll(domains) {
  open = null;
  const pages = await Promise.all(domains.map((domain) => page(domain.name, 0, PAGE)));
  zoom.classList.add("all");
  draw(pages.filter(Boolean), false);
}

/** Show the page of a domain that has the node at `place`. */
export async function openDomain(domain, place, byHand) {
  const wanted = { domain, offset: Math.floor(place / PAGE) * PAGE };
  open = wanted;
  const it = await page(domain, wanted.offset, PAGE);
  if (!it || open !== wanted) return;
  zoom.classList.remove("all");
  draw([it], true);
  if (!byHand) return;
  zoom.scrollIntoView({ block: "nearest" });
  zoom.querySelector("h3").focus({ preventScroll: true });
}

/** Show the page that has a node, and open the node. */
export async function openNode(node) {
  const limit = PAGE;
  let it = null;
  try {
    it = await get(`/v1/nodes?${new URLSearchParams({ node, limit })}`);
  } catch {
    return;
  }
  await openDomain(it.domain, it.offset, true);
  const found = [...zoom.querySelectorAll(".node-name")].find((name) => name.textContent === node);
  const details = found?.closest("details");
  if (!details) return;
  details.open = true;
  details.scrollIntoView({ block: "nearest" });
  details.firstElementChild.focus({ preventScroll: true });
}

/** Ask again for the page that is open, if one is. */
export async function refreshPage() {
  if (open) await openDomain(open.domain, open.offset, false);
  else zoom.hidden = true;
}

async function page(domain, offset, limit) {
  try {
    return await get(`/v1/nodes?${new URLSearchParams({ domain, offset, limit })}`);
  } catch {
    return null;
  }
}

function draw(pages, canClose) {
  zoom.hidden = false;
  keyed(zoom, pages, (it) => it.domain, create, (section, it) =>
    update(section, it, canClose, pages.length === 1));
}

function create(it) {
  const close = make("button", { type: "button", textContent: "Close" });
  close.addEventListener("click", () => {
    open = null;
    zoom.hidden = true;
    closed(it.domain);
  });
  const turn = (text, label, step) => {
    const button = make("button", { type: "button", textContent: text, "aria-label": label });
    button.addEventListener("click", () => openDomain(it.domain, open.offset + step * PAGE, true));
    return button;
  };
  const pager = make("span", { className: "pager" },
    turn("‹", "Nodes before", -1), make("span"), turn("›", "Nodes after", 1));
  return make("section", { className: "page" },
    make("div", { className: "head" }, make("h3", { tabIndex: -1 }), pager, close),
    make("ul", { className: "nodes" }));
}

function update(section, it, canClose, isOnly) {
  const [head, list] = section.children;
  const [title, pager, close] = head.children;
  const unnamed = isOnly ? "All nodes" : "Nodes without a domain";
  say(title, it.domain || unnamed);
  list.ariaLabel = it.domain ? `Nodes of ${it.domain}` : unnamed;
  close.hidden = !canClose;
  pager.hidden = it.total <= it.nodes.length;
  const [back, range, on] = pager.children;
  say(range, `${amount(it.offset + 1)}–${amount(it.offset + it.nodes.length)} of ${amount(it.total)}`);
  back.disabled = it.offset === 0;
  on.disabled = it.offset + it.nodes.length >= it.total;
  keyed(list, it.nodes, (node) => node.node, createNode, showNode);
}
