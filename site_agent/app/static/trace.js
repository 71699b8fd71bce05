// The trace of a result, and the frame under the cursor; data come from the review's addresses.
"use strict";

const scope = document.getElementById("scope");
const trace = document.getElementById("trace");
const api = (path) => fetch(`${scope.dataset.review}api/${path}`);
const shown = (id, text) => { document.getElementById(id).textContent = text; };
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
let session, times, events = [], view = [0, 1], points = null, cursor = 0, wanted = null, loading = false, spoken = null;

function nearest(moment) {
  let low = 0, high = times.length - 1;
  while (low < high) { const middle = (low + high) >> 1; if (times[middle] < moment) low = middle + 1; else high = middle; }
  return low && moment - times[low - 1] < times[low] - moment ? low - 1 : low;
}
const x = (moment) => (moment - view[0]) / (view[1] - view[0]) * trace.width;
const y = (value, range) => trace.height * (1 - (value - range[0]) / (range[1] - range[0])) * .92 + trace.height * .04;

function draw() {
  const box = trace.getBoundingClientRect(), scale = devicePixelRatio;
  trace.width = box.width * scale; trace.height = box.height * scale;
  const pen = trace.getContext("2d"), signal = session.has_fec ? "fec" : "ear";
  const range = session.has_fec ? [-.15, 1.15] : [0, .5];
  pen.fillStyle = colour("--accent-soft") || "#def";
  pen.fillStyle = getComputedStyle(document.querySelector(".k-blink")).backgroundColor;
  for (const event of events) pen.fillRect(x(event.onset_s), 0, Math.max(2, x(event.offset_s) - x(event.onset_s)), trace.height);
  pen.fillStyle = getComputedStyle(document.querySelector(".k-tone") ?? trace).backgroundColor;
  for (const { dataset: { tone, puff } } of document.querySelectorAll("[data-tone]")) {
    const [begin, end] = [tone || puff, puff || tone].map((text) => x(Number(text)));
    pen.fillRect(begin, 0, Math.max(2 * scale, end - begin), trace.height);
  }
  const ink = getComputedStyle(trace).color;
  pen.strokeStyle = ink; pen.lineWidth = 1.4 * scale;
  if (points) {
    for (const side of points.exact ? ["high"] : ["high", "low"]) {
      pen.beginPath();
      let open = false;
      points.times_s.forEach((time, index) => {
        const value = points[side][signal][index];
        if (value === null) { open = false; return; }
        pen[open ? "lineTo" : "moveTo"](x(time), y(value, range)); open = true;
      });
      pen.stroke();
    }
  }
  pen.globalAlpha = .35;
  for (const level of session.has_fec ? [0, 1] : []) { pen.beginPath(); pen.moveTo(0, y(level, range)); pen.lineTo(trace.width, y(level, range)); pen.stroke(); }
  pen.globalAlpha = 1; pen.fillStyle = ink; pen.font = `${12 * scale}px sans-serif`;
  for (const [level, word] of session.has_fec ? [[0, "open"], [1, "shut"]] : []) pen.fillText(word, 4 * scale, y(level, range) + (level ? -4 : 20) * scale);
  pen.lineWidth = 2 * scale; pen.strokeStyle = getComputedStyle(document.querySelector(".key-of kbd")).color;
  pen.beginPath(); pen.moveTo(x(times[cursor]), 0); pen.lineTo(x(times[cursor]), trace.height); pen.stroke();
  shown("span", `${view[0].toFixed(1)} to ${view[1].toFixed(1)} s of ${session.last_s.toFixed(0)} s`);
}

async function load() {
  const answer = await api(`trace?from_s=${view[0]}&to_s=${view[1]}&points=1000`);
  if (answer.ok) points = await answer.json();
  draw();
}

// Only the newest frame that was asked for is fetched next.
async function picture() {
  if (loading || wanted === null) return;
  const frame = wanted;
  wanted = null; loading = true;
  try {
    const facts = await (await api(`frames/${frame}`)).json();
    shown("at-time", `${facts.time_s.toFixed(3)} s`); shown("at-frame", frame);
    shown("at-fec", facts.fec === null ? facts.reason || "not known" : facts.fec.toFixed(2));
    clearTimeout(spoken);
    spoken = setTimeout(() => say(`${facts.time_s.toFixed(2)} seconds, closure ${facts.fec === null ? "not known" : facts.fec.toFixed(2)}`), 400);
    if (session.video) {
      const image = await createImageBitmap(await (await api(`frames/${frame}.jpg?side=640`)).blob());
      const canvas = document.getElementById("frame");
      canvas.width = image.width; canvas.height = image.height;
      canvas.getContext("2d").drawImage(image, 0, 0);
    }
    scope.dataset.frame = frame;
  } finally { loading = false; }
  picture();
}
function go(frame) {
  cursor = Math.min(times.length - 1, Math.max(0, frame));
  const moment = times[cursor], span = view[1] - view[0];
  if (moment < view[0] || moment > view[1]) { view = [Math.max(session.first_s, moment - span / 2), Math.max(session.first_s, moment - span / 2) + span]; load(); } else draw();
  wanted = cursor;
  picture();
}
const momentOf = (event) => { const box = trace.getBoundingClientRect(); return view[0] + (event.clientX - box.left) / box.width * (view[1] - view[0]); };
let from = null;
trace.addEventListener("pointermove", (event) => { if (times) go(nearest(momentOf(event))); });
trace.addEventListener("pointerdown", (event) => { from = momentOf(event); });
trace.addEventListener("pointerup", (event) => {
  const to = momentOf(event);
  if (from !== null && Math.abs(to - from) > .2) { view = [Math.min(from, to), Math.max(from, to)]; load(); }
  from = null;
});
trace.addEventListener("keydown", (event) => {
  if (!times) return;
  const step = event.shiftKey ? Math.max(1, nearest(times[cursor] + .25) - cursor) : 1;
  const target = { ArrowLeft: cursor - step, ArrowRight: cursor + step, Home: 0, End: times.length - 1 }[event.key];
  if (target === undefined) return;
  event.preventDefault();
  go(target);
});
document.getElementById("fit").addEventListener("click", () => { view = [session.first_s, session.last_s]; load(); });
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-at]");
  if (!link) return;
  event.preventDefault();
  history.replaceState(null, "", link.href);
  const moment = Number(link.dataset.at);
  view = [Math.max(session.first_s, moment - 2), Math.min(session.last_s, moment + 2)];
  load(); go(nearest(moment)); trace.focus();
});
addEventListener("resize", () => { if (times) draw(); });

async function begin() {
  const answer = await api("session");
  if (!answer.ok) { say("The trace cannot be shown"); shown("span", (await answer.text()).slice(0, 200)); return; }
  session = await answer.json();
  times = new Float64Array(await (await api("timestamps")).arrayBuffer());
  events = (await (await api("state")).json()).events.filter((event) => event.status !== "deleted");
  view = [session.first_s, session.last_s];
  await load();
  go(nearest(scope.dataset.from ? Number(scope.dataset.from) : events[0]?.peak_s ?? session.first_s));
  document.body.dataset.ready = "true";
}
begin();
