// The page: ask for the state after every cycle, at most once per second, and show each part of it.

import { Refused, follow, get, keepToken } from "./api.js";
import { amount, make, say } from "./dom.js";
import { know } from "./colours.js";
import { repaint, showMap } from "./map.js";
import { showDecision } from "./decisions.js";
import { showGangs } from "./gangs.js";
import { showHistory } from "./chart.js";
import { showQueues } from "./queues.js";
import { offerChoices } from "./what-if.js";

const LEAST_BETWEEN = 1000;
const AGAIN = 2000;
const status = document.querySelector("#status");
const theme = document.querySelector("#theme");
const signIn = document.querySelector("#sign-in");
const totals = document.querySelector("#totals");
let due = null;
let asked = 0;

async function refresh() {
  due = null;
  asked = performance.now();
  const [state, samples] = await Promise.all([get("/v1/state"), get("/v1/history")]);
  know(state);
  showTotals(state);
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
  say(status, "waiting for the scheduler");
  status.dataset.state = "waiting";
  console.warn(error);
  setTimeout(wantRefresh, AGAIN);
}

function showTotals(state) {
  const part = state.gpus ? ` (${Math.round((100 * state.allocated) / state.gpus)} %)` : "";
  const shown = [
    ["GPUs allocated", `${amount(state.allocated)} of ${amount(state.gpus)}${part}`],
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
  follow(0, {
    decision: showDecision,
    cycle: wantRefresh,
    connected: (is) => {
      say(status, is ? "live" : "disconnected, trying again");
      status.dataset.state = is ? "live" : "lost";
    },
  }).catch(failed);
}

start();
