// Drawing signals and blinks into a canvas; times to pixels and back.
import { colour, hatch } from "./canvas.js";
import { store } from "./store.js";

export const TOP = 18, BOTTOM = 20, LEFT = 46, RIGHT = 10;
const LINES = {
  fec_left: { name: "left", dash: [6, 4], width: 1 },
  fec_right: { name: "right", dash: [1.5, 3], width: 1.3 },
  fec: { name: "mean", dash: [], width: 1.8 },
  ear: { name: "mean", dash: [], width: 1.8 },
};

export class Scale {
  constructor(from_s, to_s, low, high, width, height, frame = { TOP, BOTTOM, LEFT, RIGHT }) {
    Object.assign(this, { from_s, to_s, low, high, width, height, frame });
    this.span = Math.max(width - frame.LEFT - frame.RIGHT, 1);
    this.rise = Math.max(height - frame.TOP - frame.BOTTOM, 1);
  }
  x(time_s) { return this.frame.LEFT + (time_s - this.from_s) / (this.to_s - this.from_s) * this.span; }
  y(value) { return this.frame.TOP + (this.high - value) / (this.high - this.low) * this.rise; }
  time(x) { return this.from_s + (x - this.frame.LEFT) / this.span * (this.to_s - this.from_s); }
}

export function drawGaps(pen, scale) {
  for (const [from_s, to_s] of store.session.gaps) {
    if (to_s < scale.from_s || from_s > scale.to_s) continue;
    const left = Math.max(scale.x(from_s), scale.frame.LEFT);
    const right = Math.min(scale.x(to_s), scale.width - scale.frame.RIGHT);
    hatch(pen, left, scale.frame.TOP, Math.max(right - left, 2), scale.rise);
  }
}

export function drawSignal(pen, scale, data, name) {
  const { name: look, dash, width } = LINES[name];
  const low = data.low[name], high = data.high[name], times = data.times_s;
  pen.save();
  pen.beginPath();
  pen.rect(scale.frame.LEFT, scale.frame.TOP, scale.span, scale.rise);
  pen.clip();
  pen.strokeStyle = pen.fillStyle = colour(look);
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.setLineDash(data.exact ? dash : []);
  pen.beginPath();
  let broken = true;
  for (let i = 0; i < times.length; i++) {
    if (high[i] === null) { broken = true; continue; }
    const x = scale.x(times[i]);
    if (broken) pen.moveTo(x, scale.y(high[i])); else pen.lineTo(x, scale.y(high[i]));
    if (!data.exact) pen.lineTo(x, scale.y(low[i]));
    broken = false;
  }
  pen.stroke();
  if (data.exact && look === "mean" && scale.span / times.length > 5) {
    for (let i = 0; i < times.length; i++) {
      if (high[i] === null) continue;
      pen.beginPath();
      pen.arc(scale.x(times[i]), scale.y(high[i]), 2.2, 0, 7);
      pen.fill();
    }
  }
  pen.restore();
}

export function drawAxes(pen, scale, ticks) {
  pen.fillStyle = colour("quiet");
  pen.strokeStyle = colour("edge");
  pen.lineWidth = 1;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const [value, text] of ticks) {
    const y = Math.round(scale.y(value)) + 0.5;
    pen.beginPath(); pen.moveTo(scale.frame.LEFT, y); pen.lineTo(scale.width - scale.frame.RIGHT, y); pen.stroke();
    pen.fillText(text, scale.frame.LEFT - 5, y);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const [time_s, text] of timeTicks(scale)) {
    const x = Math.round(scale.x(time_s)) + 0.5;
    pen.beginPath(); pen.moveTo(x, scale.height - scale.frame.BOTTOM); pen.lineTo(x, scale.height - scale.frame.BOTTOM + 4); pen.stroke();
    pen.fillText(text, x, scale.height - scale.frame.BOTTOM + 5);
  }
}

function timeTicks(scale) {
  const wanted = (scale.to_s - scale.from_s) / Math.max(2, scale.span / 90);
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 3600];
  const step = steps.find((each) => each >= wanted) ?? 7200;
  const ticks = [];
  for (let k = Math.ceil(scale.from_s / step); k * step <= scale.to_s; k++) {
    const time_s = k * step, minutes = Math.floor(time_s / 60 + 1e-9);
    const digits = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    const seconds = (time_s - minutes * 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
    ticks.push([time_s, scale.to_s < 60 ? `${time_s.toFixed(digits)} s` : `${minutes}:${seconds}`]);
  }
  return ticks;
}

export function drawEvents(pen, scale) {
  for (const event of store.state.events) {
    if (event.offset_s < scale.from_s || event.onset_s > scale.to_s) continue;
    const selected = event.id === store.selected, deleted = event.status === "deleted";
    if (deleted && !selected) continue;
    const left = Math.max(scale.x(event.onset_s), scale.frame.LEFT);
    const right = Math.min(scale.x(event.offset_s), scale.width - scale.frame.RIGHT);
    pen.fillStyle = colour(deleted ? "bad" : event.status === "left-out" ? "quiet" : "event");
    pen.globalAlpha = selected ? 0.2 : 0.09;
    pen.fillRect(left, scale.frame.TOP, Math.max(right - left, 1), scale.rise);
    pen.globalAlpha = 1;
    pen.font = `${selected ? "700 " : ""}11px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    const sign = { accepted: " ✓", corrected: " ✎", added: " +", deleted: " ✕", "left-out": " ?" }[event.status] ?? "";
    const partial = event.kind === "closure" ? " closure" : event.completeness === "partial" ? " partial" : "";
    if (right - left > 14 || selected) pen.fillText(`#${event.id}${sign}${selected ? partial : ""}`, (left + right) / 2, scale.frame.TOP - 2);
  }
}

export const HANDLES = ["onset_s", "peak_s", "offset_s"];

export function drawHandles(pen, scale, event, held) {
  const shapes = { onset_s: "▷", peak_s: "▽", offset_s: "◁" };
  for (const name of HANDLES) {
    const x = scale.x(event[name]);
    if (x < scale.frame.LEFT - 1 || x > scale.width - scale.frame.RIGHT + 1) continue;
    pen.strokeStyle = pen.fillStyle = colour("event");
    pen.lineWidth = held === name ? 3 : 1.6;
    pen.beginPath(); pen.moveTo(x, scale.frame.TOP); pen.lineTo(x, scale.height - scale.frame.BOTTOM); pen.stroke();
    pen.font = "700 16px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = name === "onset_s" ? "left" : name === "peak_s" ? "center" : "right";
    pen.fillText(shapes[name], x + (name === "onset_s" ? -2 : name === "peak_s" ? 0 : 2), scale.frame.TOP + (name === "peak_s" ? 25 : 9));
  }
}

export function drawCursor(pen, scale, time_s) {
  const x = scale.x(time_s);
  if (x < scale.frame.LEFT || x > scale.width - scale.frame.RIGHT + 1) return;
  pen.strokeStyle = pen.fillStyle = colour("cursor");
  pen.lineWidth = 1.4;
  pen.beginPath(); pen.moveTo(x, scale.frame.TOP - 4); pen.lineTo(x, scale.height - scale.frame.BOTTOM + 4); pen.stroke();
  pen.beginPath(); pen.moveTo(x - 5, scale.height - scale.frame.BOTTOM + 8); pen.lineTo(x + 5, scale.height - scale.frame.BOTTOM + 8);
  pen.lineTo(x, scale.height - scale.frame.BOTTOM + 1); pen.fill();
}
