// What the reviewer does: sent, kept, and only then shown.
import { getJson, postAction } from "./api.js";
import { nextUnreviewed } from "./events.js";
import { eventOf, frameAt, goTo, select, selectedEvent, store, timeOf, trainingOf, update } from "./store.js";

const status = document.getElementById("status");

export function say(text, problem = false) {
  status.textContent = text;
  status.classList.toggle("problem", problem);
}

let queue = Promise.resolve();

// One after the other: each must have seen the one before.
export function act(action, done) {
  const attempt = queue.then(async () => {
    try {
      const state = await postAction(store.state.revision, action);
      update({ state });
      say(done);
      return state;
    } catch (error) {
      say(error.message, true);
      try { update({ state: await getJson("state") }); } catch { /* said already */ }
      return null;
    }
  });
  queue = attempt;
  return attempt;
}

function chosen() {
  const event = selectedEvent();
  if (!event) say("Choose a blink first: J and K, or a click into the trace.", true);
  return event;
}

export async function accept() {
  const event = chosen();
  if (!event) return;
  if (await act({ action: "accept", blink_id: event.id }, `#${event.id} accepted`)) advance(event.id, "accepted");
}

export async function remove() {
  const event = chosen();
  if (!event) return;
  if (await act({ action: "delete", blink_id: event.id }, `#${event.id} deleted; U takes it back`)) advance(event.id, "deleted; U takes it back");
}

function advance(id, what) {
  if (!nextUnreviewed(id)) say(`#${id} ${what}. All blinks have been reviewed.`);
}

export async function restore() {
  const event = chosen();
  if (event) await act({ action: "restore", blink_id: event.id }, `#${event.id} is again as it was found`);
}

export async function toggleKind() {
  const event = chosen();
  if (!event) return;
  const kind = event.kind === "blink" ? "closure" : "blink";
  await act({ action: "correct", blink_id: event.id, kind }, `#${event.id} is a ${kind}`);
}

export async function toggleCompleteness() {
  const event = chosen();
  if (!event) return;
  const completeness = event.completeness === "partial" ? "complete" : "partial";
  await act({ action: "correct", blink_id: event.id, completeness }, `#${event.id} is ${completeness}`);
}

export async function moveHere(name) {
  const event = chosen();
  if (!event) return;
  const text = { onset_s: "begins", peak_s: "has its peak", offset_s: "ends" }[name];
  await act({ action: "correct", blink_id: event.id, [name]: timeOf(store.frame) }, `#${event.id} ${text} here`);
}

export async function addHere() {
  try {
    const suggested = await getJson(`suggestions/${store.frame}`);
    const before = new Set(store.state.events.map((event) => event.id));
    const state = await act(suggested, "Blink added; move onset, peak and offset where they are off");
    const added = state?.events.find((event) => !before.has(event.id));
    if (added) { select(added.id); goTo(frameAt(added.peak_s)); }
  } catch (error) {
    say(error.message, true);
  }
}

export async function undo() {
  if (store.state.undoable) await act({ action: "undo" }, "Taken back");
  if (store.selected !== null && !eventOf(store.selected)) update({ selected: null });
}

export async function redo() {
  if (store.state.redoable) await act({ action: "redo" }, "Done again");
}

export async function toggleTraining(landmarks) {
  if (!store.session.video) { say("There is no video to take training frames from.", true); return; }
  const frame = store.frame;
  if (trainingOf(frame)) await act({ action: "drop_frame", frame }, `Frame ${frame} is not used for training`);
  else await act({ action: "use_frame", frame, landmarks, moved: [] }, `Frame ${frame} is used for training`);
}

export const keepLandmarks = (frame, landmarks, moved) =>
  act({ action: "use_frame", frame, landmarks, moved }, `Landmarks of frame ${frame} kept; the frame is used for training`);
