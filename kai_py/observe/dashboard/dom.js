// How is the page kept in step with data? Elements stay as long as what they show, by key.

/** Make an element: properties, then children. Text is always text, never markup. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** Set text only where it differs, so that selections and screen readers are left in peace. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Let `parent` hold one element per item, in order; elements of items that stay are kept. */
export function keyed(parent, items, keyOf, create, update) {
  const known = (parent.known ??= new Map());
  const left = new Set(known.keys());
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    left.delete(key);
    let element = known.get(key);
    if (!element) known.set(key, (element = create(item)));
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const key of left) {
    known.get(key).remove();
    known.delete(key);
  }
}

export function option(value, text) {
  return make("option", { value, textContent: text });
}

/** Offer these choices, keeping the one that is chosen while it exists. */
export function offer(select, choices) {
  const offered = JSON.stringify(choices);
  if (select.offered === offered) return;
  select.offered = offered;
  const chosen = select.value;
  select.replaceChildren(...choices.map(([value, text]) => option(value, text)));
  if (choices.some(([value]) => value === chosen)) select.value = chosen;
}

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** An amount as people read it; null is no limit. */
export function amount(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1e6 ? short.format(value) : counts.format(value);
}

/** "2 pods", "1 pod". */
export function several(count, word) {
  return `${amount(count)} ${word}${count === 1 ? "" : "s"}`;
}

/** Seconds as the two largest units that matter. */
export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** The last part of a gang's key, which is what its owner is called. */
export function shortName(gang) {
  return gang.slice(gang.lastIndexOf("/") + 1);
}
