// How old is what is shown, and which replica told it? What is stale is dimmed, until it comes again.

import { ago, say } from "./dom.js";

const CHECK = 1000;
const STALE = 90;
const LOST = 5;
const status = document.querySelector("#status");
let origin = null;
let got = 0;
let lostAt = null;

/** A state was told by a replica. */
export function told(by) {
  origin = by;
  got = performance.now();
  tell();
}

/** Whether the connection stands. */
export function connected(is) {
  if (is) lostAt = null;
  else lostAt ??= performance.now();
  tell();
}

/** No state could be had: the scheduler starts, or nothing leads. */
export function waiting() {
  lostAt ??= performance.now();
  tell();
}

function tell() {
  const now = performance.now();
  const age = origin ? origin.age + (now - got) / 1000 : null;
  const lost = lostAt === null ? null : (now - lostAt) / 1000;
  const stale = age !== null && (age > STALE || (lost !== null && lost > LOST));
  document.body.classList.toggle("stale", stale);
  status.dataset.state = lost === null ? "live" : origin ? "lost" : "waiting";
  const first = lost === null ? "live" : origin ? "disconnected, trying again" : "waiting for the scheduler";
  say(status, stale ? `${first}; shown is the state ${ago(age)} ago` : first);
  status.title = origin?.replica ? `by replica ${origin.replica}, ${ago(age)} old` : "";
}

setInterval(tell, CHECK);
