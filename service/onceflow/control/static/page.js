// Keeps the page current, and sends orders. Without it, the page shows what was when it was loaded.
"use strict";

const EVERY_MS = 2000;
const live = document.getElementById("live");

async function refresh() {
  if (!live || document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    swap(document.getElementById("main"), fresh.getElementById("main"));
    live.textContent = "live";
    live.classList.remove("stale");
  } catch {
    live.textContent = "not live: the service does not answer";
    live.classList.add("stale");
  }
}

// Part by part, so that whatever has the focus, or says what became of an order, stays.
function swap(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const isSame = old.nodeType === 1 && old.children.length > 0 && old.children.length === fresh.children.length
    && old.tagName === fresh.tagName && old.childNodes.length === fresh.childNodes.length;
  if (old.id === "order") return;
  if (!isSame) {
    if (old.contains(document.activeElement) && old.id !== "main") return;
    const said = old.querySelector?.("#order");
    if (said) fresh.querySelector("#order")?.replaceWith(said);
    old.replaceWith(fresh);
    return;
  }
  for (const { name, value } of [...fresh.attributes]) old.setAttribute(name, value);
  for (const [place, node] of [...old.childNodes].entries()) swap(node, fresh.childNodes[place].cloneNode(true));
}

async function order(button) {
  const pipeline = button.parentElement.dataset.pipeline;
  const action = button.dataset.order;
  if (action !== "start" && !confirm(`${action} ${decodeURIComponent(pipeline)}? Its running batch commits first.`)) return;
  const said = document.getElementById("order");
  said.textContent = `${action}…`;
  const csrf = document.querySelector("meta[name=csrf]").content;
  const answer = await fetch(`/v1/pipelines/${pipeline}/${action}?wait=60`, {
    method: "POST",
    headers: { "x-csrf-token": csrf },
  });
  const told = await answer.json();
  said.textContent = answer.ok ? `${action}: ${told.outcome} ${told.detail}` : `${action}: ${told.detail}`;
  await refresh();
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-order]");
  if (button) order(button);
});
// One look at a time: it may take long when brokers do not answer.
async function keepFresh() {
  await refresh();
  setTimeout(keepFresh, EVERY_MS);
}
setTimeout(keepFresh, EVERY_MS);
