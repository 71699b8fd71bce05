// The state of the page: one object, changed through `update`, which notifies all who draw.
export const store = {
  session: null, times: new Float64Array(), state: null,
  frame: 0, selected: null, from_s: 0, to_s: 1, playing: false, editing: false,
};

const listeners = [];
let waiting = new Set();

export function listen(names, draw) {
  listeners.push([new Set(names), draw]);
}

// Changes of one moment are drawn together, once.
export function update(changes) {
  Object.assign(store, changes);
  if (waiting.size === 0) queueMicrotask(notify);
  for (const name of Object.keys(changes)) waiting.add(name);
}

function notify() {
  const changed = waiting;
  waiting = new Set();
  for (const [names, draw] of listeners) {
    for (const name of changed) if (names.has(name)) { draw(changed); break; }
  }
}

export function frameAt(time_s) {
  const times = store.times;
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time_s) low = middle + 1; else high = middle;
  }
  return low > 0 && time_s - times[low - 1] <= times[low] - time_s ? low - 1 : low;
}

export const timeOf = (frame) => store.times[frame] ?? 0;
export const isWaiting = (event) => ["unreviewed", "left-out"].includes(event.status);
export const eventOf = (id) => store.state?.events.find((event) => event.id === id) ?? null;
export const selectedEvent = () => eventOf(store.selected);
export const trainingOf = (frame) => store.state?.training.find((each) => each.frame === frame) ?? null;

export function show(from_s, to_s) {
  const { first_s, last_s } = store.session;
  const whole = Math.max(last_s - first_s, 0.05);
  const length = Math.min(Math.max(to_s - from_s, 0.05), whole * 1.02);
  const margin = whole * 0.01;
  let start = Math.min(from_s, last_s + margin - length);
  start = Math.max(start, first_s - margin);
  update({ from_s: start, to_s: start + length });
}

export function goTo(frame) {
  const known = Math.min(Math.max(Math.round(frame), 0), store.times.length - 1);
  const time_s = timeOf(known);
  const length = store.to_s - store.from_s;
  if (time_s < store.from_s || time_s > store.to_s) show(time_s - length / 2, time_s + length / 2);
  update({ frame: known });
}

export function select(id) {
  const event = eventOf(id);
  if (!event) { update({ selected: null }); return; }
  const length = Math.max(store.to_s - store.from_s, (event.offset_s - event.onset_s) * 1.6);
  const middle = (event.onset_s + event.offset_s) / 2;
  show(middle - length / 2, middle + length / 2);
  update({ selected: id, frame: frameAt(event.peak_s) });
}
