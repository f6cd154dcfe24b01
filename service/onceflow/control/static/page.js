// Keeps the page current, and sends orders. Without it, the page shows the state when it was loaded.
"use strict";

const EVERY_MS = 2000;
const MAX_LOOKS = 200;
const SETTLED = { running: ["running", "standby", "failed"], stopped: ["stopped"] };
const live = document.getElementById("live");

async function refresh() {
  if (!live || document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected) location.assign(answer.url);
    if (!answer.ok || answer.redirected) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    localize(fresh);
    swap(document.getElementById("main"), fresh.getElementById("main"));
    live.textContent = "live";
    live.classList.remove("stale");
  } catch {
    live.textContent = "not live: the service does not answer";
    live.classList.add("stale");
  }
}

// Times in the zone and the language of the browser; UTC as a tooltip.
function localize(root) {
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  for (const each of root.querySelectorAll("time:not([title])")) {
    each.title = each.textContent;
    each.textContent = local.format(new Date(each.dateTime));
  }
}

// Part by part, so that the focus stays. Charts renew themselves.
function swap(old, fresh) {
  if (old.isEqualNode(fresh) || old.dataset?.kept) return;
  const isSame = old.nodeType === 1 && old.children.length > 0 && old.children.length === fresh.children.length
    && old.tagName === fresh.tagName && old.childNodes.length === fresh.childNodes.length;
  if (!isSame) {
    if (old.contains(document.activeElement) && old.id !== "main") return;
    for (const kept of old.querySelectorAll?.("[data-kept]") ?? []) fresh.querySelector(`#${kept.id}`)?.replaceWith(kept);
    old.replaceWith(fresh);
    return;
  }
  for (const { name, value } of [...fresh.attributes]) old.setAttribute(name, value);
  for (const [place, node] of [...old.childNodes].entries()) swap(node, fresh.childNodes[place].cloneNode(true));
}

function confirmed(question, answer) {
  const dialog = document.getElementById("confirm");
  dialog.querySelector("p").textContent = question;
  dialog.querySelector("[value=yes]").textContent = answer;
  dialog.showModal();
  return new Promise((tell) => {
    // Not "close": it comes with the next frame, when the next question may already be shown.
    dialog.querySelector("form").onsubmit = (event) => tell(event.submitter.value === "yes");
  });
}

async function order(button) {
  const action = button.dataset.order;
  if (!(await confirmed(button.dataset.ask, button.textContent))) return;
  const said = document.getElementById("order");
  const say = (told) => (said.textContent = `${action}: ${told}`);
  say("…");
  try {
    await carryOut(button.dataset.where, say);
  } catch (error) {
    say(`the service does not answer (${error.message})`);
  }
  await refresh();
}

// Orders return at once: look until it is as desired, or cannot become so.
async function carryOut(where, say) {
  const csrf = document.querySelector("meta[name=csrf]").content;
  const answer = await fetch(where, { method: "POST", headers: { "x-csrf-token": csrf } });
  let told = await answer.json();
  say(resultOf(told));
  for (let look = 0; told.desired && look < MAX_LOOKS; look++) {
    if (SETTLED[told.desired].includes(told.observed)) break;
    await new Promise((go) => setTimeout(go, EVERY_MS));
    const all = await (await fetch(where.split("/").slice(0, 3).join("/"))).json();
    told = all.find((one) => one.name === told.name);
    say(resultOf(told));
  }
}

function resultOf(told) {
  if (told.draining) return "all end after what is under way";
  if (told.sent !== undefined) return `${told.sent} records sent again, ${told.kept} letters kept`;
  if (told.observed) return told.error ? `${told.observed}, ${told.error.text}` : told.observed;
  return told.detail;
}

// Only on request: each look reads from the topics.
async function showRecords(details) {
  if (!details.open) return;
  for (const body of details.querySelectorAll("[data-side]")) {
    const said = details.querySelector("p");
    try {
      const answer = await fetch(`/v1/pipelines/${details.dataset.pipeline}/records?side=${body.dataset.side}`);
      const found = await answer.json();
      said.textContent = answer.ok ? "" : found.detail;
      if (answer.ok) body.replaceChildren(...found.map(rowOf));
    } catch {
      said.textContent = "the service does not answer";
    }
  }
  localize(details);
}

// Records carry any timestamp, also one out of the range of dates.
function timeOf(unixMs) {
  if (Math.abs(unixMs) > 8.64e15) return `${unixMs} ms after 1970`;
  const at = document.createElement("time");
  at.dateTime = new Date(unixMs).toISOString();
  at.textContent = at.dateTime.replace("T", " ").replace(/\.\d+Z/, " UTC");
  return at;
}

function rowOf(record) {
  const row = document.createElement("tr");
  const cell = (content, kind = "") => {
    const made = row.appendChild(document.createElement("td"));
    made.className = kind;
    made.append(content);
  };
  cell(timeOf(record.timestamp_ms));
  cell(`${record.topic}-${record.partition}`);
  cell(String(record.offset), "number");
  const told = Object.entries(record.columns).map(([name, value]) => `${name}: ${value}`);
  if (record.key !== null) told.unshift(`key: ${record.key}`);
  if (record.columns_not_shown) told.push(`${record.columns_not_shown} columns not shown`);
  cell(told.join(", "), "text");
  cell(String(record.value_bytes), "number");
  return row;
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches("[data-records]")) showRecords(event.target);
}, true);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-order]");
  if (button) order(button);
});
// One look at a time: it may take long when brokers do not answer.
async function keepFresh() {
  await refresh();
  setTimeout(keepFresh, EVERY_MS);
}
localize(document);
setTimeout(keepFresh, EVERY_MS);
