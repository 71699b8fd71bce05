// The video frame, and the eyes enlarged, where landmarks can be put right.
import { getJson, getPicture } from "./api.js";
import { keepLandmarks, say } from "./actions.js";
import { colour, prepare, redrawOnChange } from "./canvas.js";
import { listen, store, timeOf, trainingOf, update } from "./store.js";

const EYE_POINTS = 12, FIRST_OF_EYES = 36;
const MOST_KEPT = 48, KEEP_AFTER_MS = 900;
const whole = document.getElementById("picture"), face = document.getElementById("face");
const caption = document.getElementById("face-caption"), readout = document.getElementById("readout");
// As in every picture: what a model found, and what a person says.
const FOUND = "#50ffc8", CORRECTED = "#ffd200";
const shown = document.getElementById("show-landmarks");
const pictures = new Map();
let current = null, busy = false, facts = null, asked = 0;
let views = [], point = 0, held = null, moved = new Set(), timer = 0;

async function load(frame) {
  if (!pictures.has(frame)) {
    pictures.set(frame, await getPicture(frame));
    while (pictures.size > MOST_KEPT) {
      const [oldest, picture] = pictures.entries().next().value;
      pictures.delete(oldest);
      if (picture !== current?.picture) picture.close();
    }
  }
  return pictures.get(frame);
}

// Always the frame wanted last; those that were passed over meanwhile are never asked for.
async function follow() {
  readFacts();
  if (!store.session.video || busy) return;
  busy = true;
  try {
    while (current?.frame !== store.frame) {
      const frame = store.frame;
      current = { frame, picture: await load(frame) };
      draw();
    }
    for (const next of [store.frame + 1, store.frame - 1, store.frame + 2]) {
      if (store.playing || next < 0 || next >= store.session.frames) continue;
      await load(next);
      if (store.frame !== current.frame) break;
    }
  } catch (error) {
    say(error.message, true);
    current = { frame: store.frame, picture: null };
  } finally {
    busy = false;
  }
  if (current?.frame !== store.frame) follow();
}

export const ready = () => !store.session.video || current?.frame === store.frame;

async function readFacts() {
  const frame = store.frame, number = ++asked;
  const time_s = timeOf(frame).toFixed(3);
  readout.textContent = `frame ${frame}, ${time_s} s`;
  if (store.playing) return;
  await keepNow();
  try {
    const wish = store.session.landmarks && shown.checked ? "?landmarks=1" : "";
    const fresh = await getJson(`frames/${frame}${wish}`);
    // The answer knows nothing of moves that wait to be kept; they ask again.
    if (number !== asked || timer) return;
    facts = fresh;
    moved = new Set(trainingOf(frame)?.moved ?? []);
    const text = (value, digits) => (value === null ? "–" : value.toFixed(digits));
    readout.textContent = `frame ${frame}, ${time_s} s   ` + (fresh.reason ? `eyes not seen: ${fresh.reason}`
      : `FEC ${text(fresh.fec, 2)} (left ${text(fresh.fec_left, 2)}, right ${text(fresh.fec_right, 2)})  EAR ${text(fresh.ear, 3)}`);
    draw();
  } catch (error) {
    say(error.message, true);
  }
}

function draw() {
  if (!store.session?.video) return;
  drawWhole();
  drawFace();
}

function known() { return facts && facts.frame === store.frame ? facts : null; }

function drawWhole() {
  const { pen, width, height } = prepare(whole);
  const picture = current?.picture;
  if (!picture) return;
  const factor = Math.min(width / picture.width, height / picture.height);
  const left = (width - picture.width * factor) / 2, top = (height - picture.height * factor) / 2;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(picture, left, top, picture.width * factor, picture.height * factor);
  const here = known();
  if (!here?.box) return;
  const zoom = factor * picture.width / store.session.video.width_px;
  const [x0, y0, x1, y1] = here.box;
  pen.strokeStyle = FOUND;
  pen.lineWidth = 1.5;
  pen.strokeRect(left + x0 * zoom, top + y0 * zoom, (x1 - x0 + 1) * zoom, (y1 - y0 + 1) * zoom);
  if (!shown.checked || !here.landmarks) return;
  pen.fillStyle = FOUND;
  for (const [x, y] of here.landmarks) pen.fillRect(left + (x + 0.5) * zoom - 1, top + (y + 0.5) * zoom - 1, 2, 2);
}

// The part of the frame around one eye, or around both where no landmarks are known.
function eyeRegion(here, eye) {
  const { width_px, height_px } = store.session.video;
  if (here?.landmarks) {
    const xs = eye.map((i) => here.landmarks[i][0]), ys = eye.map((i) => here.landmarks[i][1]);
    const margin = (Math.max(...xs) - Math.min(...xs)) * 0.3;
    return [Math.min(...xs) - margin, Math.min(...ys) - margin, Math.max(...xs) + margin, Math.max(...ys) + margin];
  }
  if (here?.box) {
    const [x0, y0, x1, y1] = here.box, tall = y1 - y0;
    return [x0, y0 + tall * 0.15, x1, y0 + tall * 0.55];
  }
  return [0, 0, width_px, height_px];
}

// The eyes are landmarks 37 to 48 of the 68, or all those of a model of the eyes alone.
function eyesOf(landmarks) {
  const first = landmarks.length === EYE_POINTS ? 0 : FIRST_OF_EYES;
  return Array.from({ length: EYE_POINTS }, (_, i) => first + i);
}

// One view an eye, the subject's right one above; they stay while landmarks are being moved.
function placeViews(here, width, height) {
  const stays = views.length && here && (held || store.editing) && views[0].frame === store.frame;
  if (stays) return;
  const all = here?.landmarks ? eyesOf(here.landmarks) : [];
  const eyes = all.length ? [all.slice(0, 6), all.slice(6)] : [all];
  const tall = height / eyes.length;
  views = eyes.map((eye, k) => {
    const [x0, y0, x1, y1] = eyeRegion(here, eye);
    return {
      frame: store.frame, eye, top: k * tall, width, height: tall,
      zoom: Math.min(width / (x1 - x0), tall / (y1 - y0)), x: (x0 + x1) / 2, y: (y0 + y1) / 2,
    };
  });
}

const toView = (view, [x, y]) => [
  view.width / 2 + (x + 0.5 - view.x) * view.zoom, view.top + view.height / 2 + (y + 0.5 - view.y) * view.zoom,
];

function drawFace() {
  const { pen, width, height } = prepare(face);
  const picture = current?.picture, here = known();
  if (!picture) return;
  placeViews(here, width, height);
  const size = picture.width / store.session.video.width_px;
  for (const view of views) {
    pen.save();
    pen.beginPath();
    pen.rect(0, view.top, width, view.height - (view.top === 0 && views.length > 1 ? 2 : 0));
    pen.clip();
    const [left, top] = toView(view, [-0.5, -0.5]);
    pen.imageSmoothingEnabled = view.zoom / size < 12;
    pen.drawImage(picture, left, top, picture.width / size * view.zoom, picture.height / size * view.zoom);
    if (here?.landmarks && shown.checked) drawEye(pen, here.landmarks, view);
    pen.restore();
  }
  face.classList.toggle("editing", store.editing);
  caption.textContent = captionText(here);
  caption.hidden = caption.textContent === "";
}

function drawEye(pen, landmarks, view) {
  pen.lineWidth = 1.2;
  pen.strokeStyle = `${FOUND}bf`;
  pen.beginPath();
  view.eye.forEach((i, k) => (k ? pen.lineTo(...toView(view, landmarks[i])) : pen.moveTo(...toView(view, landmarks[i]))));
  pen.closePath();
  pen.stroke();
  for (const i of view.eye) {
    const [x, y] = toView(view, landmarks[i]), chosen = store.editing && eyesOf(landmarks)[point] === i;
    pen.beginPath();
    if (moved.has(i)) pen.rect(x - 4, y - 4, 8, 8); else pen.arc(x, y, chosen ? 5.5 : 3.6, 0, 7);
    pen.fillStyle = chosen ? "#ff5fa2" : moved.has(i) ? CORRECTED : FOUND;
    pen.strokeStyle = "#202020";
    pen.fill();
    pen.stroke();
  }
}

function captionText(here) {
  if (store.editing && here?.landmarks) return `Landmark ${eyesOf(here.landmarks)[point] + 1}: drag, or Tab and arrow keys (Shift: 2 px). Square: moved. L or Esc ends.`;
  if (!store.session.landmarks) return "No landmark model: start again with --landmarks FILE to see and correct landmarks.";
  if (here && !here.landmarks && shown.checked) return "No face was found in this frame.";
  return trainingOf(store.frame) ? "Used for training" : "";
}

export const currentLandmarks = () => known()?.landmarks ?? null;

export function edit(on) {
  if (on && !currentLandmarks()) {
    say(store.session.landmarks ? "There are no landmarks in this frame." : "Landmarks need a model: start again with --landmarks FILE.", true);
    return;
  }
  if (!on) keepNow();
  update({ editing: on });
  if (on) face.focus();
}

function shift(index, x, y) {
  facts.landmarks[index] = [x, y];
  moved.add(index);
  drawFace();
  clearTimeout(timer);
  timer = setTimeout(keepNow, KEEP_AFTER_MS);
}

async function keepNow() {
  if (!timer) return;
  clearTimeout(timer);
  timer = 0;
  await keepLandmarks(facts.frame, facts.landmarks, [...moved].sort((a, b) => a - b));
}

// Returns whether the key was one of landmark mode.
export function landmarkKey(key) {
  if (!store.editing || !currentLandmarks() || document.activeElement !== face) return false;
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  if (key.key === "Tab") { point = (point + (key.shiftKey ? EYE_POINTS - 1 : 1)) % EYE_POINTS; drawFace(); return true; }
  if (!(key.key in steps)) return false;
  const index = eyesOf(facts.landmarks)[point];
  const by = key.shiftKey ? 2 : 0.5, [x, y] = facts.landmarks[index];
  shift(index, x + steps[key.key][0] * by, y + steps[key.key][1] * by);
  return true;
}

function viewAt(pointer) {
  const y = pointer.clientY - face.getBoundingClientRect().top;
  return views.find((view) => y < view.top + view.height) ?? views[views.length - 1];
}

function inFrame(view, pointer) {
  const place = face.getBoundingClientRect();
  return [
    (pointer.clientX - place.left - view.width / 2) / view.zoom + view.x - 0.5,
    (pointer.clientY - place.top - view.top - view.height / 2) / view.zoom + view.y - 0.5,
  ];
}

function pressed(pointer) {
  const landmarks = currentLandmarks();
  if (!landmarks || !shown.checked || pointer.button !== 0) return;
  const view = viewAt(pointer), [x, y] = inFrame(view, pointer);
  const away = (i) => Math.hypot(landmarks[i][0] - x, landmarks[i][1] - y) * view.zoom;
  const nearest = view.eye.reduce((best, i) => (away(i) < away(best) ? i : best));
  if (away(nearest) > 16) return;
  if (!store.editing) edit(true);
  point = eyesOf(landmarks).indexOf(nearest);
  held = { view, dx: landmarks[nearest][0] - x, dy: landmarks[nearest][1] - y };
  face.setPointerCapture(pointer.pointerId);
  drawFace();
}

function dragged(pointer) {
  if (!held || !currentLandmarks()) return;
  const [x, y] = inFrame(held.view, pointer);
  shift(eyesOf(facts.landmarks)[point], x + held.dx, y + held.dy);
}

export function start() {
  listen(["frame", "playing"], follow);
  listen(["state"], readFacts);
  listen(["editing"], draw);
  shown.addEventListener("change", readFacts);
  face.addEventListener("pointerdown", pressed);
  face.addEventListener("pointermove", dragged);
  face.addEventListener("pointerup", () => { held = null; });
  redrawOnChange([whole, face], () => { views = []; draw(); });
}
