// Addresses of what is shown: #gang=, #queue= and #node= open one, ?q= filters, ?namespace= is one's own.

import { choose, openGang } from "./gangs.js";
import { openNode } from "./pages.js";

const filter = document.querySelector("#filter");
const namespace = document.querySelector("#namespace");
const OWN = "kai-py-namespace";
const TYPING = 250;
let typed = null;

/** Call `changed` when another part is to be shown, and open what the address names. */
export function followAddress(changed) {
  const query = new URLSearchParams(location.search);
  filter.value = query.get("q") ?? "";
  namespace.value = query.get("namespace") ?? localStorage.getItem(OWN) ?? "";
  const keep = () => {
    write({ q: filter.value, namespace: namespace.value });
    localStorage.setItem(OWN, namespace.value);
    changed();
  };
  filter.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(keep, TYPING);
  });
  namespace.addEventListener("change", keep);
  addEventListener("hashchange", openNamed);
  addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey;
    if (event.key === "Escape" && event.target === filter && filter.value) {
      filter.value = "";
      keep();
    } else if ((event.key === "q" || event.key === "/") && !isTyping && !event.altKey) {
      event.preventDefault();
      filter.focus();
    }
  });
}

/** Open what the hash of the address names. */
export function openNamed() {
  const [[kind, name] = []] = new URLSearchParams(location.hash.slice(1));
  if (!name) return;
  if (kind === "gang") openGang(name);
  if (kind === "queue") choose(name);
  if (kind === "node") openNode(name);
}

function write(values) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
}
