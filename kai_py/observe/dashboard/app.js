// The page: ask for the state after every cycle, at most once per second, and show each part of it.

import { Refused, follow, get, getWithOrigin, keepToken } from "./api.js";
import { amount, make, say, several } from "./dom.js";
import { connected, told, waiting } from "./freshness.js";
import { followAddress, openNamed } from "./links.js";
import { know } from "./colours.js";
import { repaint, showMap } from "./map.js";
import { filterDecisions, showDecision } from "./decisions.js";
import { drawGangs, showGangs } from "./gangs.js";
import { showHistory } from "./chart.js";
import { drawQueues, showQueues } from "./queues.js";
import { offerChoices } from "./what-if.js";

const LEAST_BETWEEN = 1000;
const AGAIN = 2000;
const QUIET = 30000;
const theme = document.querySelector("#theme");
const signIn = document.querySelector("#sign-in");
const totals = document.querySelector("#totals");
let due = null;
let asked = 0;

async function refresh() {
  due = null;
  asked = performance.now();
  const own = new URLSearchParams(location.search).get("namespace") ?? "";
  const path = `/v1/state${own && `?${new URLSearchParams({ namespace: own })}`}`;
  const [[state, origin], samples] = await Promise.all([getWithOrigin(path), get("/v1/history")]);
  told(origin);
  know(state);
  showTotals(state);
  showLargest(state);
  showQueues(state.queues);
  showGangs(state);
  showMap(state);
  offerChoices(state);
  showHistory(samples, state.queues);
  document.body.dataset.cycle = state.cycle;
}

/** Refresh soon, but not while the page is hidden and not twice in a second. */
function wantRefresh() {
  if (due !== null || document.hidden) return;
  const pause = Math.max(0, LEAST_BETWEEN - (performance.now() - asked));
  due = setTimeout(() => refresh().catch(failed), pause);
}

function failed(error) {
  due = null;
  if (error instanceof Refused) return askToken(error.message);
  waiting();
  console.warn(error);
  setTimeout(wantRefresh, AGAIN);
}

function showTotals(state) {
  const part = state.gpus ? ` (${Math.round((100 * state.allocated) / state.gpus)} %)` : "";
  const shown = [
    ["GPUs allocated", `${amount(state.allocated)} of ${amount(state.gpus)}${part}`],
    ["Goodput", `${amount(state.productive)} GPUs`],
    ["Nodes", amount(state.nodes)],
    ["Gangs running", amount(state.running_gangs)],
    ["Gangs pending", amount(state.pending_gangs)],
  ];
  if (totals.children.length !== shown.length) {
    totals.replaceChildren(...shown.map(() => make("div", {}, make("dt"), make("dd"))));
  }
  shown.forEach(([name, value], place) => {
    say(totals.children[place].firstElementChild, name);
    say(totals.children[place].lastElementChild, value);
  });
}

/** The largest gang that idle GPUs take now, by GPUs of a pod. */
function showLargest(state) {
  const gangs = state.largest_gangs.map((each) => {
    const within = state.domains.length > 1 ? ` (${amount(each.in_one_domain)} in one domain)` : "";
    return `${several(each.pods, "pod")} of ${several(each.gpus_per_pod, "GPU")}${within}`;
  });
  const largest = gangs.length ? gangs.join(", ") : "none, no GPU is idle";
  say(document.querySelector("#largest"), `Largest gang that could start now: ${largest}`);
}

function askToken(why) {
  say(document.querySelector("#sign-in-why"), why.trim());
  if (!signIn.open) signIn.showModal();
}

signIn.addEventListener("close", () => {
  keepToken(document.querySelector("#token").value);
  start();
});

const THEMES = ["system", "light", "dark"];

function setTheme(name) {
  localStorage.setItem("kai-py-theme", name);
  document.documentElement.dataset.theme = name;
  say(theme, `Theme: ${name}`);
  repaint();
}

theme.addEventListener("click", () => {
  const now = THEMES.indexOf(document.documentElement.dataset.theme);
  setTheme(THEMES[(now + 1) % THEMES.length]);
});
setTheme(THEMES.find((name) => name === localStorage.getItem("kai-py-theme")) ?? "system");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
document.addEventListener("visibilitychange", wantRefresh);

async function start() {
  try {
    await refresh();
  } catch (error) {
    failed(error);
    if (error instanceof Refused) return;
  }
  openNamed();
  follow(0, {
    decision: showDecision,
    cycle: wantRefresh,
    connected: (is) => {
      connected(is);
      if (is) wantRefresh();
    },
  }).catch(failed);
}

// No cycle runs while nothing changes; the data is still current as long as the scheduler answers.
setInterval(() => {
  if (performance.now() - asked > QUIET) wantRefresh();
}, LEAST_BETWEEN);
followAddress(() => {
  drawGangs();
  drawQueues();
  filterDecisions();
  wantRefresh();
});
start();
