// The pages' own script. Everything but copying, progress and uploads works without it.
"use strict";

function say(words) {
  document.getElementById("said").textContent = words;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-text]");
  if (!button) return;
  const text = button.dataset.copyText ?? document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS browsers have no clipboard; the old way still works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
  const before = button.innerHTML;
  button.textContent = "Copied";
  setTimeout(() => { button.innerHTML = before; }, 1500);
});

const tray = document.querySelector(".tray span");
if (tray) {
  const hint = tray.textContent;
  document.addEventListener("change", async () => {
    const chosen = [...document.querySelectorAll("[name=model]:checked")].map((box) => ["model", box.value]);
    const words = chosen.length ? `${chosen.length} chosen` : hint;
    tray.textContent = words;
    if (chosen.length < 2 || chosen.length > 6) return;
    const answer = await fetch(`/json/merges/fit?${new URLSearchParams(chosen)}`);
    if (!answer.ok || tray.textContent !== words) return;
    const { methods, problem } = await answer.json();
    tray.textContent = `${words}: ${methods.length ? `they fit together (${methods.slice(0, 3).join(", ")})` : `they do not fit together, ${problem}`}`;
    say(tray.textContent);
  });
}

document.querySelector("[data-focus]")?.focus();

// Wide screens show the facets always; narrow ones behind a summary.
const facets = document.querySelector("details.facets");
if (facets && matchMedia("(min-width: 46.01rem)").matches) facets.open = true;

// A part of a page that changes by itself is fetched again until it says that it is done.
async function poll(part) {
  const again = (next) => setTimeout(poll, 1500, next);
  const answer = await fetch(part.dataset.poll, { headers: { "X-Pool-Polling": "1" } }).catch(() => null);
  // A connection that broke, or a pool that restarts, comes back; a refusal stays one.
  if (!answer || answer.status >= 500) again(part);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(part.id);
  if (!fresh) return;
  if (fresh.textContent !== part.textContent) say(fresh.dataset.says ?? "");
  // The news wait for a person who is at a button here.
  if (part.contains(document.activeElement)) again(part);
  else {
    part.replaceWith(fresh);
    if (fresh.dataset.poll) again(fresh);
  }
}
document.querySelectorAll("[data-poll]").forEach((part) => setTimeout(poll, 1500, part));
