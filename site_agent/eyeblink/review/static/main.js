// Start, buttons, keys, playing.
import { accept, addHere, moveHere, redo, remove, restore, say, toggleCompleteness, toggleKind, toggleTraining, undo } from "./actions.js";
import { getJson, getNumbers } from "./api.js";
import * as events from "./events.js";
import * as pictures from "./pictures.js";
import { goTo, isWaiting, listen, select, selectedEvent, show, store, timeOf, trainingOf, update } from "./store.js";
import * as trace from "./trace.js";

const by = (id) => document.getElementById(id);
const training = () => toggleTraining(pictures.currentLandmarks());
const toggleEditing = () => pictures.edit(!store.editing);
const seek = (frames) => { update({ playing: false }); goTo(store.frame + frames); };
const tenth = () => Math.max(1, Math.round(store.times.length / Math.max(store.session.last_s - store.session.first_s, 0.1) / 10));

// Key, what it does, and the words for the list of keys.
const KEYS = [
  ["j", () => events.step(1), "Next blink (also ↓)"], ["k", () => events.step(-1), "Blink before (also ↑)"],
  ["n", () => events.nextUnreviewed(store.selected) || say("All blinks have been reviewed."), "Next one to review"],
  ["a", accept, "Accept, go to the next"], ["d", remove, "Delete (also Del)"], ["r", restore, "Restore as it was found"],
  ["1", () => moveHere("onset_s"), "Onset is at this frame"], ["2", () => moveHere("peak_s"), "Peak is at this frame"],
  ["3", () => moveHere("offset_s"), "Offset is at this frame"],
  ["c", toggleKind, "Blink or longer closure"], ["p", toggleCompleteness, "Partial or complete"],
  ["m", addHere, "Add a missed blink here"], ["u", undo, "Undo (also Ctrl Z)"], ["U", redo, "Redo (also Ctrl Y)"],
  ["ArrowLeft", () => seek(-1), "One frame back; Shift: a tenth of a second"],
  ["ArrowRight", () => seek(1), "One frame on; Shift: a tenth of a second"],
  [" ", () => play(), "Play or stop"], ["-", () => trace.zoom(1.5), "Show a longer part"], ["+", () => trace.zoom(1 / 1.5), "Show a shorter part"],
  ["Home", () => goTo(0), "First frame"], ["End", () => goTo(store.times.length - 1), "Last frame"],
  ["t", training, "Use this frame for training, or not"], ["l", toggleEditing, "Correct landmarks: Tab, arrow keys"],
  ["?", () => by("help").showModal(), "This list"],
];
const ALIASES = {
  ArrowDown: "j", ArrowUp: "k", Delete: "d", "=": "+", _: "-",
  J: "j", K: "k", N: "n", A: "a", D: "d", R: "r", C: "c", P: "p", M: "m", T: "t", L: "l",
};
const ACTIONS = new Map(KEYS.map(([key, action]) => [key, action]));

function pressed(key) {
  if (by("help").open || key.altKey || key.metaKey) return;
  if (pictures.landmarkKey(key)) { key.preventDefault(); return; }
  if (key.key === "Escape" && store.editing) { pictures.edit(false); by("face").blur(); return; }
  if (key.ctrlKey) {
    if (key.key === "z") undo(); else if (key.key === "y" || key.key === "Z") redo(); else return;
    key.preventDefault();
    return;
  }
  const target = key.target;
  if (target.matches("select")) return;
  if (key.key === " " && target.matches("button, input, summary")) return;
  const name = ALIASES[key.key] ?? key.key;
  if (key.shiftKey && (name === "ArrowLeft" || name === "ArrowRight")) seek(name === "ArrowLeft" ? -tenth() : tenth());
  else if (ACTIONS.has(name)) ACTIONS.get(name)();
  else return;
  key.preventDefault();
}

function play() {
  if (store.playing) { update({ playing: false }); return; }
  update({ playing: true });
  const began_ms = performance.now(), from_s = timeOf(store.frame), speed = Number(by("speed").value);
  const advance = () => {
    if (!store.playing) return;
    const now_s = from_s + (performance.now() - began_ms) / 1000 * speed;
    let frame = store.frame;
    while (frame + 1 < store.times.length && timeOf(frame + 1) <= now_s) frame += 1;
    if (frame !== store.frame && pictures.ready()) goTo(frame);
    if (store.frame + 1 >= store.times.length) update({ playing: false });
    else requestAnimationFrame(advance);
  };
  requestAnimationFrame(advance);
}

function drawButtons() {
  const { state } = store;
  const event = selectedEvent(), deleted = event?.status === "deleted";
  const blinks = state.events.filter((each) => each.status !== "added");
  const reviewed = blinks.filter((each) => !isWaiting(each)).length;
  by("progress").max = Math.max(blinks.length, 1);
  by("progress").value = reviewed;
  by("progress-text").textContent = `${reviewed} of ${blinks.length} reviewed`;
  by("undo").disabled = !state.undoable;
  by("redo").disabled = !state.redoable;
  for (const id of ["accept", "delete", "kind", "completeness"]) by(id).disabled = !event || deleted;
  by("restore").disabled = !event || isWaiting(event);
  by("kind").firstChild.textContent = event?.kind === "closure" ? "Make it a blink " : "Make it a closure ";
  by("completeness").firstChild.textContent = event?.completeness === "partial" ? "Make it complete " : "Make it partial ";
  by("play").firstChild.textContent = store.playing ? "Stop " : "Play ";
  by("use-frame").setAttribute("aria-pressed", String(Boolean(trainingOf(store.frame))));
  by("edit-landmarks").setAttribute("aria-pressed", String(store.editing));
}

function drawTraining() {
  by("training-count").textContent = String(store.state.training.length);
  by("training-list").replaceChildren(...store.state.training.map(({ frame, moved }) => {
    const line = document.createElement("li"), button = document.createElement("button");
    button.textContent = moved.length ? `${frame} ✎` : String(frame);
    button.title = moved.length ? `${moved.length} landmarks corrected` : "landmarks as the model placed them";
    button.addEventListener("click", () => goTo(frame));
    line.append(button);
    return line;
  }));
}

function connect() {
  const clicks = {
    undo, redo, accept, delete: remove, restore, kind: toggleKind, completeness: toggleCompleteness, add: addHere,
    back: () => seek(-1), forward: () => seek(1), play, "use-frame": training, "edit-landmarks": toggleEditing,
    "zoom-in": () => trace.zoom(1 / 1.5), "zoom-out": () => trace.zoom(1.5), "help-button": () => by("help").showModal(),
  };
  for (const [id, action] of Object.entries(clicks)) by(id).addEventListener("click", () => action());
  document.addEventListener("keydown", pressed);
  document.addEventListener("problem", (event) => say(event.detail, true));
  const words = { ArrowLeft: "←", ArrowRight: "→", " ": "Space", U: "Shift U", "-": "−" };
  for (const [key, , text] of KEYS) {
    const term = document.createElement("dt"), what = document.createElement("dd"), cap = document.createElement("kbd");
    cap.textContent = words[key] ?? (key.length === 1 ? key.toUpperCase() : key);
    term.append(cap);
    what.textContent = text;
    by("key-list").append(term, what);
  }
}

async function start() {
  const [session, state, times] = await Promise.all([getJson("session"), getJson("state"), getNumbers("timestamps")]);
  Object.assign(store, { session, state, times });
  document.title = `${session.name} – blink review`;
  by("name").textContent = by("name").title = session.name;
  by("reviewer").textContent = `reviewer: ${session.reviewer}`;
  if (!session.video) { by("pictures").classList.add("absent"); by("stage").classList.add("no-video"); }
  for (const id of ["edit-landmarks", "use-frame"]) by(id).hidden = !session.video;
  by("show-landmarks").parentElement.hidden = !session.landmarks;
  by("warnings").hidden = session.warnings.length === 0;
  by("warnings").textContent = session.warnings.join("  ·  ");
  show(session.first_s, Math.min(session.last_s, session.first_s + 4));
  connect();
  listen(["state", "selected", "frame", "playing", "editing"], drawButtons);
  listen(["state"], drawTraining);
  events.start();
  pictures.start();
  update({ state, frame: 0 });
  await trace.start();
  if (!events.nextUnreviewed(null) && state.events.length) select(state.events[0].id);
  say("A accepts, D deletes, J and K go on, ? shows all keys.");
  document.body.dataset.ready = "true";
}

start().catch((error) => say(`The page cannot start: ${error.message}`, true));
