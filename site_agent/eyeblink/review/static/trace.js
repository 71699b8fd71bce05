// The trace around the frame, with handles to drag, and the overview of the whole recording.
import { getJson } from "./api.js";
import { colour, prepare, redrawOnChange } from "./canvas.js";
import { act } from "./actions.js";
import {
  drawAxes, drawCursor, drawEvents, drawGaps, drawHandles, drawSignal, HANDLES, Scale,
} from "./plot.js";
import { frameAt, goTo, isWaiting, listen, select, selectedEvent, show, store, timeOf, update } from "./store.js";

const trace = document.getElementById("trace"), overview = document.getElementById("overview");
const caption = document.getElementById("trace-caption");
const SLIM = { TOP: 6, BOTTOM: 18, LEFT: 46, RIGHT: 10 };
let data = null, whole = null, scale = null, wholeScale = null;
let held = null, wanted = 0;
const HANDLE_NAMES = { onset_s: "onset", peak_s: "peak", offset_s: "offset" };

const signalNames = () => (store.session.has_fec ? ["fec_left", "fec_right", "fec"] : ["ear"]);

async function fetchTrace(from_s, to_s, points) {
  return getJson(`trace?from_s=${from_s}&to_s=${to_s}&points=${Math.round(points)}`);
}

// A little more than is seen is fetched, so that moving about shows something at once.
async function refresh() {
  const length = store.to_s - store.from_s;
  const asked = ++wanted;
  const inside = data && data.from_s <= store.from_s && data.to_s >= store.to_s;
  const fine = data && (data.exact || length > (data.to_s - data.from_s) * 0.5);
  if (inside && fine) { drawTrace(); return; }
  const from_s = store.from_s - length * 0.5, to_s = store.to_s + length * 0.5;
  drawTrace();
  try {
    const fresh = await fetchTrace(from_s, to_s, Math.min(4000, 2 * trace.clientWidth));
    if (asked !== wanted) return;
    data = { ...fresh, from_s, to_s };
    drawTrace();
  } catch (error) {
    document.dispatchEvent(new CustomEvent("problem", { detail: error.message }));
  }
}

function range() {
  if (store.session.has_fec) return [-0.25, 1.2];
  const known = (whole?.high.ear ?? []).filter((value) => value !== null);
  return known.length ? [Math.min(...(whole.low.ear.filter((v) => v !== null))) * 0.9, Math.max(...known) * 1.05] : [0, 0.5];
}

function drawTrace() {
  const { pen, width, height } = prepare(trace);
  if (!store.session || !data) return;
  const [low, high] = range();
  scale = new Scale(store.from_s, store.to_s, low, high, width, height);
  drawGaps(pen, scale);
  const fec = store.session.has_fec;
  const limit = store.session.complete_fec;
  drawAxes(pen, scale, fec ? [[0, "open 0"], [0.5, "0.5"], [limit, `${limit}`], [1, "shut 1"]] : [[low, low.toFixed(2)], [high, high.toFixed(2)]]);
  drawEvents(pen, scale);
  for (const name of signalNames()) drawSignal(pen, scale, data, name);
  const event = held?.draft ?? selectedEvent();
  if (event && event.status !== "deleted") drawHandles(pen, scale, event, held?.name);
  drawCursor(pen, scale, timeOf(store.frame));
  const length = store.to_s - store.from_s;
  caption.textContent = `${fec ? "Eyelid closure (FEC)" : "Eye aspect ratio"}, ${length < 10 ? length.toFixed(1) : Math.round(length)} s shown${data.exact ? ", every frame" : ", lowest and highest"}`;
}

function drawOverview() {
  const { pen, width, height } = prepare(overview);
  if (!store.session || !whole) return;
  const [low, high] = range();
  const { first_s, last_s } = store.session;
  wholeScale = new Scale(first_s, Math.max(last_s, first_s + 0.01), low, high, width, height, SLIM);
  drawGaps(pen, wholeScale);
  drawAxes(pen, wholeScale, []);
  const name = store.session.has_fec ? "fec" : "ear";
  pen.globalAlpha = 0.6;
  drawSignal(pen, wholeScale, whole, name);
  pen.globalAlpha = 1;
  for (const event of store.state.events) {
    if (event.status === "deleted") continue;
    const x = wholeScale.x(event.peak_s), selected = event.id === store.selected;
    pen.fillStyle = pen.strokeStyle = colour(isWaiting(event) ? "event" : "good");
    pen.lineWidth = 1.3;
    pen.beginPath();
    pen.moveTo(x - 4, 1); pen.lineTo(x + 4, 1); pen.lineTo(x, 8); pen.closePath();
    if (isWaiting(event) && !selected) pen.stroke(); else pen.fill();
  }
  const left = wholeScale.x(store.from_s), right = wholeScale.x(store.to_s);
  pen.strokeStyle = pen.fillStyle = colour("accent");
  pen.lineWidth = 1.5;
  pen.globalAlpha = 0.12;
  pen.fillRect(left, 0, Math.max(right - left, 2), height - SLIM.BOTTOM);
  pen.globalAlpha = 1;
  pen.strokeRect(left, 0.75, Math.max(right - left, 2), height - SLIM.BOTTOM);
  drawCursor(pen, wholeScale, timeOf(store.frame));
}

const place = (event, canvas) => event.clientX - canvas.getBoundingClientRect().left;

function handleAt(x) {
  const event = selectedEvent();
  if (!event || event.status === "deleted" || !scale) return null;
  let nearest = null, distance = 9;
  for (const name of HANDLES) {
    const away = Math.abs(scale.x(event[name]) - x);
    if (away < distance) { nearest = name; distance = away; }
  }
  return nearest;
}

function pressed(pointer) {
  if (pointer.button !== 0 || !scale) return;
  const x = place(pointer, trace), name = handleAt(x);
  trace.setPointerCapture(pointer.pointerId);
  held = { name, x, from_s: store.from_s, to_s: store.to_s, moved: false, draft: name ? { ...selectedEvent() } : null };
}

function moved(pointer) {
  const x = place(pointer, trace);
  if (!held) { trace.style.cursor = handleAt(x) ? "ew-resize" : "default"; return; }
  if (Math.abs(x - held.x) > 3) held.moved = true;
  if (!held.moved) return;
  if (held.name) {
    const frame = frameAt(scale.time(x));
    held.draft[held.name] = timeOf(frame);
    update({ frame });
    drawTrace();
  } else {
    const shift_s = (x - held.x) / scale.span * (held.to_s - held.from_s);
    show(held.from_s - shift_s, held.to_s - shift_s);
  }
}

async function released(pointer) {
  if (!held) return;
  const { name, moved: wasMoved, draft } = held;
  if (wasMoved && name) {
    await act({ action: "correct", blink_id: draft.id, [name]: draft[name] }, `#${draft.id}: ${HANDLE_NAMES[name]} moved`);
  } else if (!wasMoved) {
    const time_s = scale.time(place(pointer, trace));
    const inside = store.state.events.find((e) => e.status !== "deleted" && e.onset_s <= time_s && time_s <= e.offset_s);
    if (inside) update({ selected: inside.id });
    goTo(frameAt(time_s));
  }
  held = null;
  drawTrace();
}

export function zoom(factor, around_s = timeOf(store.frame)) {
  const middle = Math.min(Math.max(around_s, store.from_s), store.to_s);
  show(middle - (middle - store.from_s) * factor, middle + (store.to_s - middle) * factor);
}

function scrolled(wheel) {
  wheel.preventDefault();
  const length = store.to_s - store.from_s;
  if (wheel.shiftKey || Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY)) {
    const shift_s = Math.sign(wheel.deltaX || wheel.deltaY) * length * 0.1;
    show(store.from_s + shift_s, store.to_s + shift_s);
  } else zoom(wheel.deltaY > 0 ? 1.25 : 0.8, scale.time(place(wheel, trace)));
}

function jumped(pointer) {
  if (!wholeScale || (pointer.type === "pointermove" && pointer.buttons !== 1)) return;
  const time_s = wholeScale.time(place(pointer, overview)), x = wholeScale.x(time_s);
  const near = store.state.events.find((e) => e.status !== "deleted" && Math.abs(wholeScale.x(e.peak_s) - x) < 5);
  if (near && pointer.type === "pointerdown") { select(near.id); return; }
  const half = (store.to_s - store.from_s) / 2;
  show(time_s - half, time_s + half);
  goTo(frameAt(time_s));
}

export async function start() {
  listen(["from_s", "to_s"], refresh);
  listen(["state", "selected", "frame"], drawTrace);
  listen(["state", "selected", "frame", "from_s", "to_s"], drawOverview);
  trace.addEventListener("pointerdown", pressed);
  trace.addEventListener("pointermove", moved);
  trace.addEventListener("pointerup", released);
  trace.addEventListener("pointercancel", () => { held = null; drawTrace(); });
  trace.addEventListener("wheel", scrolled, { passive: false });
  overview.addEventListener("pointerdown", jumped);
  overview.addEventListener("pointermove", jumped);
  redrawOnChange([trace], drawTrace);
  redrawOnChange([overview], drawOverview);
  const { first_s, last_s } = store.session;
  whole = await fetchTrace(first_s - 0.001, Math.max(last_s, first_s + 0.01) + 0.001, 1200);
  drawOverview();
  await refresh();
}
