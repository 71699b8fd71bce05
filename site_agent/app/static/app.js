// The app's own script: the way in, live parts, and focus. Lists, forms and results work without it.
"use strict";

const at = document.body.dataset.at;
const said = document.getElementById("said");
const policy = window.trustedTypes?.createPolicy("poolctl", { createHTML: (html) => html });
const say = (text) => { said.textContent = text; };

// The ticket stands in the fragment, which is neither sent nor logged.
async function enter(line) {
  const ticket = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  const answer = await fetch(`${at}/enter`, { method: "POST", body: new URLSearchParams({ ticket }) });
  if (answer.ok) location.replace(`${at}/`);
  else line.textContent = "This way in was used already, or is older than a minute. Start poolctl again.";
}
const line = document.getElementById("entering");
if (line) enter(line);

document.querySelector("[data-focus]")?.focus();

// A page with Cancel is a dialog: Escape leaves it, and the link that led to it has the focus again.
const cancel = document.querySelector(".dialog-foot a.button");
const [OPENER, LEFT] = ["poolctl-opener", "poolctl-left"];
cancel?.addEventListener("click", () => sessionStorage.setItem(LEFT, "1"));
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !event.target.closest("select")) cancel?.click(); });
if (!cancel) {
  const opener = [...document.links].find((link) => link.getAttribute("href") === sessionStorage.getItem(OPENER));
  if (sessionStorage.getItem(LEFT)) opener?.focus();
  sessionStorage.removeItem(LEFT);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a.button");
    if (link) sessionStorage.setItem(OPENER, link.getAttribute("href"));
  });
}

// Cells are kept by their button: the browser asks before a person leaves edited ones.
const isEdited = (part) => [...part.querySelectorAll("input[form=cells]")].some((cell) => cell.value !== cell.defaultValue);
let isSaving = false;
document.addEventListener("submit", (event) => { isSaving = event.target.id === "cells"; });
addEventListener("beforeunload", (event) => { if (!isSaving && isEdited(document)) event.preventDefault(); });

// Parts of the page that jobs change are fetched again, unless a person is editing them.
async function fetchParts() {
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const html = await answer.text();
  const page = new DOMParser().parseFromString(policy ? policy.createHTML(html) : html, "text/html");
  for (const part of document.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(part.id);
    const isTouched = part.contains(document.activeElement) || part.querySelector("input:checked") || isEdited(part);
    if (fresh && fresh.textContent !== part.textContent && !isTouched) part.replaceWith(document.adoptNode(fresh));
  }
}
// One at a time: an older answer never replaces a newer one.
let [isFetching, isAskedAgain] = [false, false];
async function refresh() {
  isAskedAgain = true;
  if (isFetching) return;
  isFetching = true;
  while (isAskedAgain) {
    isAskedAgain = false;
    await fetchParts().catch(() => {});
  }
  isFetching = false;
}

// Of the one stream of this page, whenever it is opened again: timers of an earlier one are over.
let [stream, silent, later] = [null, null, null];
let waiting = null;
const states = new Map();
function listen() {
  clearTimeout(later);
  stream?.close();
  stream = new EventSource(`${at}/events`);
  const stopped = document.getElementById("stopped");
  stream.addEventListener("open", () => { clearTimeout(silent); silent = null; if (!stopped.hidden) location.reload(); });
  // Jobs may have changed since the page was drawn, or while no stream was open.
  stream.addEventListener("hello", refresh);
  stream.addEventListener("error", () => {
    silent ??= setTimeout(() => { stopped.hidden = false; }, 5000);
    // A browser gives up a stream that was refused.
    if (stream.readyState === EventSource.CLOSED) later = setTimeout(listen, 5000);
  });
  stream.addEventListener("message", (event) => {
    const { job, state, percent, left } = JSON.parse(event.data);
    const bar = document.querySelector(`progress[data-job="${job}"]`);
    const output = document.querySelector(`output[data-left="${job}"]`);
    if (bar && percent !== null) bar.value = percent;
    if (output && percent !== null) output.textContent = `${percent} %${left ? `, ${left} left` : ""}`;
    if (states.get(job) !== state) {
      if (state === "done" || state === "failed") say(`A job ${state === "done" ? "is done" : "failed"}`);
      states.set(job, state);
      clearTimeout(waiting);
      waiting = setTimeout(refresh, 300);
    }
  });
}
// A browser allows six connections to a host: hidden windows give theirs back.
if ("live" in document.body.dataset) {
  listen();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) listen();
    else { stream.close(); clearTimeout(later); clearTimeout(silent); silent = null; }
  });
}

// Browsers tell the names of dropped files, not where they lie: the server looks in known folders.
function send(path, name, values) {
  const form = Object.assign(document.createElement("form"), { method: "post", action: `${at}${path}` });
  const csrf = document.querySelector("meta[name=csrf]").content;
  for (const [key, value] of [["csrf", csrf], ...values.map((each) => [name, each])]) {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: key, value }));
  }
  document.body.append(form);
  form.submit();
}
function namesIn(entry) {
  if (!entry.isDirectory) return Promise.resolve([entry.name]);
  const read = (done) => entry.createReader().readEntries((inner) => done(inner.map((each) => each.name)), () => done([]));
  return new Promise(read);
}
const isPath = (text) => /^"?(\/|[A-Za-z]:[\\/])[^\n]*$/.test(text.trim());
if ("live" in document.body.dataset) {
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const text = event.dataTransfer.getData("text/plain");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
    if (entries.length) send("/videos/find", "name", (await Promise.all(entries.map(namesIn))).flat());
    else if (isPath(text)) send("/videos/add/folder", "folder", [text]);
  });
  document.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text/plain");
    if (!event.target.closest("input, textarea") && isPath(text)) send("/videos/add/folder", "folder", [text]);
  });
}
