// How does the page reach the scheduler? JSON by path, and one stream of events that mends itself.

const TOKEN = "kai-py-token";
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 15000;

/** The server wants a token, or another one. */
export class Refused extends Error {}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

/** The API server's proxy removes the first header, so the token is sent in one of our own, too. */
function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}`, "X-Kai-Authorization": `Bearer ${token}` } : {};
}

/** The page may be served below a path, such as that of the API server's proxy. */
async function ask(path, options = {}) {
  const response = await fetch(path.slice(1), { headers: headers(), ...options });
  if ([401, 403].includes(response.status)) throw new Refused(await response.text());
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response;
}

export async function get(path) {
  return (await ask(path)).json();
}

/** The answer, and what its headers say: which replica made it, and how old its data is. */
export async function getWithOrigin(path) {
  const response = await ask(path);
  const origin = {
    replica: response.headers.get("X-Kai-Replica") ?? "",
    age: Number(response.headers.get("X-Kai-Data-Age") ?? 0),
  };
  return [await response.json(), origin];
}

/** Follow /v1/events for ever; `on` has a function per kind of event and one for the connection. */
export async function follow(since, on) {
  let last = since;
  let pause = FIRST_PAUSE;
  for (;;) {
    try {
      const response = await ask(`/v1/events?since=${last}`);
      on.connected(true);
      for await (const { kind, id, data } of events(response.body)) {
        pause = FIRST_PAUSE;
        if (id) last = id;
        on[kind]?.(JSON.parse(data));
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
    }
    on.connected(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE);
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => split(line)));
      if (fields.event) yield { kind: fields.event, id: fields.id, data: fields.data };
    }
  }
}

function split(line) {
  const at = line.indexOf(": ");
  return [line.slice(0, at), line.slice(at + 2)];
}
