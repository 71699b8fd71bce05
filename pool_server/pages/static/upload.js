// Upload of one file: its digest, then its parts, then the check by the pool.
"use strict";

const form = document.getElementById("upload");
const drop = document.getElementById("drop");
const input = document.getElementById("file");
const progress = document.getElementById("progress");
const problem = document.getElementById("problem");
let file = null;
let proposed = "";
let known = "";

function show(words, share) {
  progress.hidden = false;
  progress.querySelector("progress").value = share;
  const line = progress.querySelector("p");
  if (line.textContent !== words) {
    line.textContent = words;
    say(words);
  }
}

function clear() {
  problem.hidden = true;
  problem.querySelector("ul").replaceChildren();
  form.querySelectorAll(".error").forEach((mark) => mark.remove());
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
  form.querySelectorAll(".wrong").forEach((part) => part.classList.remove("wrong"));
}

// A problem is shown above the form, and next to its field.
function mark({ where, problem: text }) {
  const named = form.elements[where];
  const field = named instanceof RadioNodeList ? named[0] : named;
  const line = document.createElement("li");
  line.textContent = text;
  problem.querySelector("ul").append(line);
  if (!field) return;
  const label = form.querySelector(`label[for="${field.id}"]`)?.textContent ?? field.dataset.label;
  const link = document.createElement("a");
  field.id ||= where;
  link.href = `#${field.id}`;
  link.textContent = where === "file" ? text : `${label ?? where}: ${text}`;
  line.replaceChildren(link);
  field.setAttribute("aria-invalid", "true");
  const error = document.createElement("span");
  error.className = "error";
  error.textContent = text;
  field.after(error);
  field.closest(".field")?.classList.add("wrong");
}

function refuse(message, hint = "", fields = [], link = "") {
  clear();
  progress.hidden = true;
  problem.hidden = false;
  problem.querySelector("strong").textContent = message;
  problem.querySelector("p").textContent = hint;
  const open = problem.querySelector("a.button");
  open.hidden = !link;
  open.href = link;
  fields.forEach(mark);
  problem.focus();
  form.querySelector("button.main").disabled = false;
}

function choose(chosen) {
  if (!chosen) return;
  clear();
  if (chosen.size > Number(form.dataset.most)) {
    refuse(`${chosen.name} is too large for a browser`, "Use 'poolctl upload'; it goes on by itself after a break.");
    return;
  }
  file = chosen;
  document.getElementById("chosen").textContent = `${file.size.toLocaleString()} bytes`;
  const name = document.getElementById("name");
  if (!name.value || name.value === proposed) {
    proposed = file.name.toLowerCase().replace(/\.[^.]*$/, "").replace(/[^a-z0-9._-]+/g, "-").replace(/^[^a-z0-9]+/, "").slice(0, 64);
    name.value = proposed;
  }
}

// Another log-in, in this browser or another tab, changes the key of the form.
async function renewKey() {
  const answer = await fetch(location.pathname);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const key = page.querySelector("#upload [name=csrf]");
  if (!key) {
    const error = new Error("Your session has ended.");
    error.hint = "Log in in another tab, and send this form again: nothing is lost.";
    throw error;
  }
  form.querySelector("[name=csrf]").value = key.value;
}

// Returns whether the file is there already; nothing is sent before the user has read that.
async function isKnown(digest, name) {
  const found = await ask(`/uploads/known?digest=${digest}`);
  const model = name.includes("/") ? name : `${form.dataset.site}/${name}`;
  if (!found || known === digest + name) return false;
  if (found.model !== model) known = digest + name;
  const hint = found.model === model ? "Nothing was sent." : `Nothing was sent yet. Send it again to publish it as ${model}, too.`;
  refuse(`The pool has this file: it is ${found.text}.`, hint, [], `/models/${found.address}`);
  return true;
}

function digestOf(chosen) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(form.dataset.worker);
    worker.onmessage = ({ data }) => {
      if (data.digest) {
        worker.terminate();
        resolve(data.digest);
      } else show("Reading the file", data.done);
    };
    worker.onerror = () => reject(new Error("the file cannot be read"));
    worker.postMessage(chosen);
  });
}

async function ask(path, options = {}) {
  const csrf = form.querySelector("[name=csrf]").value;
  const answer = await fetch(path, {
    ...options,
    headers: { Accept: "application/json", "X-CSRF": csrf, ...options.headers },
  });
  if (answer.status === 204) return null;
  const body = await answer.json().catch(() => null);
  if (!answer.ok) {
    const error = new Error(body?.error.message ?? `the pool answered ${answer.status}`);
    error.fields = body?.error.details?.fields;
    error.hint = body?.error.hint ?? "Log in again, and choose the same file: it goes on where it stopped.";
    throw error;
  }
  return body;
}

async function send(event) {
  event.preventDefault();
  if (!file) {
    refuse("No file was chosen.", "", [{ where: "file", problem: "Drop one into the box, or use its button." }]);
    return;
  }
  clear();
  form.querySelector("button.main").disabled = true;
  try {
    await renewKey();
    const fields = new URLSearchParams(new FormData(form));
    fields.delete("file");
    fields.set("file_name", file.name);
    fields.set("size_bytes", file.size);
    fields.set("digest", await digestOf(file));
    if (await isKnown(fields.get("digest"), fields.get("name"))) return;
    let upload = await ask("/uploads", { method: "POST", body: fields });
    if (upload.state !== "complete") {
      const missing = upload.parts.filter((part) => !part.received);
      const kept = upload.parts.length - missing.length;
      if (kept) say(`Going on: ${kept} of ${upload.parts.length} parts are there`);
      for (const part of missing) {
        show(`Sending part ${part.number} of ${upload.parts.length}`, (part.number - 1) / upload.parts.length);
        const body = file.slice(part.offset, part.offset + part.size_bytes);
        await ask(`/uploads/${upload.upload_id}/parts/${part.number}`, { method: "PUT", body });
      }
      show("The pool checks the file", 1);
      upload = await ask(`/uploads/${upload.upload_id}/complete`, { method: "POST" });
    }
    location.assign(`/models/${upload.version.address.replace("pool://", "")}`);
  } catch (error) {
    const isBroken = error instanceof TypeError;
    refuse(isBroken ? "The connection to the pool broke." : error.message, error.hint ?? "Send it again: it goes on where it stopped.", error.fields);
  }
}

form.addEventListener("submit", send);
input.addEventListener("change", () => choose(input.files[0]));
drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  input.files = event.dataTransfer.files;
  choose(input.files[0]);
});
