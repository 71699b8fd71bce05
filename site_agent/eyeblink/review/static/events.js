// The list of blinks: order, filter, and which one comes next.
import { isWaiting, listen, select, store } from "./store.js";

const MARKS = { unreviewed: "○", "left-out": "?", accepted: "✓", corrected: "✎", added: "+", deleted: "✕" };
const list = document.getElementById("events");
const order = document.getElementById("order");
const filter = document.getElementById("filter");

function shown(event) {
  if (event.id === store.selected) return true;
  if (filter.value === "unreviewed") return isWaiting(event);
  if (filter.value === "touched") return ["corrected", "added"].includes(event.status);
  if (filter.value === "deleted") return event.status === "deleted";
  return true;
}

export function orderedEvents() {
  const events = (store.state?.events ?? []).filter(shown);
  if (order.value === "doubt") events.sort((a, b) => b.doubt - a.doubt || a.onset_s - b.onset_s);
  return events;
}

export function clock(seconds) {
  const minutes = Math.floor(seconds / 60);
  const rest = (seconds - 60 * minutes).toFixed(2).padStart(5, "0");
  return `${minutes}:${rest}`;
}

function item(event) {
  const line = document.createElement("li");
  line.id = `event-${event.id}`;
  line.className = event.status;
  line.setAttribute("role", "option");
  line.setAttribute("aria-selected", String(event.id === store.selected));
  const duration = Math.round((event.offset_s - event.onset_s) * 1000);
  const cells = [
    ["mark", MARKS[event.status]], ["number", `#${event.id}`],
    ["times", `${clock(event.onset_s)} · ${duration} ms`],
    ["kind", event.kind === "closure" ? "closure" : event.completeness],
    ["why", isWaiting(event) ? event.reasons.join(", ") : event.status],
  ];
  for (const [name, text] of cells) {
    const cell = document.createElement("span");
    cell.className = name;
    cell.textContent = text;
    line.append(cell);
  }
  line.querySelector(".mark").title = event.status;
  line.addEventListener("click", () => select(event.id));
  return line;
}

function draw(changed) {
  if (changed && !changed.has("state") && filter.value === "all") {
    list.querySelector("[aria-selected=true]")?.setAttribute("aria-selected", "false");
  } else {
    const events = orderedEvents();
    list.replaceChildren(...events.map(item));
    if (events.length === 0) {
      const empty = document.createElement("li");
      empty.className = "nothing";
      empty.textContent = "No blink of this kind. M adds one that was missed.";
      list.append(empty);
    }
  }
  const current = document.getElementById(`event-${store.selected}`);
  current?.setAttribute("aria-selected", "true");
  list.setAttribute("aria-activedescendant", current?.id ?? "");
  if (current && !current.matches(":hover")) current.scrollIntoView({ block: "nearest" });
}

export function step(by) {
  const events = orderedEvents();
  if (events.length === 0) return;
  const place = events.findIndex((event) => event.id === store.selected);
  const next = place < 0 ? 0 : Math.min(Math.max(place + by, 0), events.length - 1);
  select(events[next].id);
}

// After a decision: the next one that waits for one, behind this one if there is any.
export function nextUnreviewed(after) {
  const events = orderedEvents();
  const place = events.findIndex((event) => event.id === after);
  const waiting = (event) => isWaiting(event) && event.id !== after;
  const next = events.slice(place + 1).find(waiting) ?? events.find(waiting);
  if (next) select(next.id);
  return Boolean(next);
}

export function start() {
  listen(["state", "selected"], draw);
  order.addEventListener("change", () => draw());
  filter.addEventListener("change", () => draw());
}
