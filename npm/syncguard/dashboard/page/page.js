// The page of syncguard/dashboard. Texts of users are set as text alone, never as markup.

/* global document, location, EventSource -- a browser's. */

const COLUMNS = ["Key", "Owner", "Fence", "Held", "Ends", "Extended", "Action"];

const at = (id) => document.getElementById(id);

/** What the server tells of: locks by the hash of their lock id. `next` is known once the store was looked at. */
const live = { title: "Held now", rows: new Map(), waiting: [], next: undefined };
/** What a search or another page has found, in place of what is live. */
let found;
let clockOffsetMs = 0;
/** The locks that one owner got in one millisecond: most likely together. */
let together = new Map();
/** How many slots of a key were seen in use. How many there may be is not stored. */
const slotsSeen = new Map();

/** Text that anybody may have written: what is invisible, or turns the writing around, is shown as what it is. */
const printable = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, escaped);
const escaped = (character) => `\\u${character.codePointAt(0).toString(16).padStart(4, "0")}`;

function duration(ms) {
  if (ms < 60_000) return `${(Math.max(0, ms) / 1000).toFixed(1)} s`;
  const days = Math.floor(ms / 86_400_000);
  return (days > 0 ? `${days} d ` : "") + new Date(ms).toISOString().slice(11, 19);
}

const moment = (ms) => new Date(ms).toLocaleTimeString(undefined, { hour12: false });
const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
/** A name within a sentence, whose direction it does not change. */
const apart = (name) => `\u2068${printable(name)}\u2069`;
function nameOf({ key, slot, gate }) {
  if (gate) return `${key}, gate`;
  return slot === undefined ? key : `${key}, slot ${slot}`;
}
const idOf = ({ lockIdHash }) => `lock-${lockIdHash}`;
/** Whether somebody has named the owner. Its default, `host:pid`, does not say what was granted together. */
const isNamed = (owner) => owner !== null && !/:\d+$/.test(owner);
const grantOf = ({ owner, acquiredAtMs }) => `${acquiredAtMs} ${owner}`;

/** Which locks were granted with this one: those of its set, or most likely those. */
function companyOf(lock) {
  const likely = isNamed(lock.owner) ? (together.get(grantOf(lock)) ?? []) : [];
  const keys = new Set(lock.set ?? likely.map(({ key }) => key));
  keys.delete(lock.key);
  const how = lock.set === undefined ? "same owner, same millisecond" : "one set";
  return keys.size > 0 && `together with ${[...keys].map(printable).join(", ")} (${how})`;
}

/** Whether it is held for much longer than the lock on its key usually is. */
function isLate({ usualMs, acquiredAtMs }, nowMs) {
  return nowMs - acquiredAtMs > Math.max(3 * usualMs, usualMs + 1000);
}

/** Of each column, a text of the lock, and what is written small below it. */
function textsOf(lock, nowMs) {
  const { owner, acquiredAtMs, expiresAtMs, usualMs, extensions, seen, leads } = lock;
  const ends = expiresAtMs > nowMs ? `in ${duration(expiresAtMs - nowMs)}` : "within a second";
  const usual = isLate(lock, nowMs) && `longer than usual (${duration(usualMs)})`;
  const seenTimes = seen === undefined ? "not seen" : `${plural(seen, "time")} seen`;
  return [
    [printable(nameOf(lock)), companyOf(lock), leads && "leads in this process"],
    [owner === null ? "–" : printable(owner)],
    [lock.fence],
    [duration(nowMs - acquiredAtMs), usual || `since ${moment(acquiredAtMs)}`],
    [ends, `at ${moment(expiresAtMs)}`],
    [extensions === undefined ? seenTimes : plural(extensions, "time")],
  ];
}

const ORDERS = {
  "oldest first": (a, b) => a.acquiredAtMs - b.acquiredAtMs,
  "newest first": (a, b) => b.acquiredAtMs - a.acquiredAtMs,
  "what ends first": (a, b) => a.expiresAtMs - b.expiresAtMs,
  "by key": (a, b) => a.key.localeCompare(b.key) || (a.slot ?? 0) - (b.slot ?? 0),
  "by owner": (a, b) => (a.owner ?? "\uffff").localeCompare(b.owner ?? "\uffff"),
};

/** Writes only what is new: screen readers and selections notice. */
function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function make(name, properties, ...content) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...content);
  return made;
}

function makeRow(lock) {
  const cells = COLUMNS.map((headers) =>
    make("td", { headers, role: "cell" }, make("bdi"), make("small")),
  );
  const { owner, fence, lockIdHash } = lock;
  const holder = owner === null ? "somebody without a label" : apart(owner);
  const text = `Held by ${holder} under fence ${fence}. The holder may go on working until it notices: make sure that it has ended, or that your data refuses smaller fences.`;
  const texts = { do: "force-release", lock: lockIdHash };
  cells.at(-1).replaceChildren(...changeButton("Force-release", nameOf(lock), text, texts));
  return make("tr", { id: idOf(lock), role: "row" }, ...cells);
}

/** Writes what the row of a lock says at this moment. */
function paint(row) {
  const { lock } = row;
  const nowMs = Date.now() + clockOffsetMs;
  for (const [place, [text, ...more]] of textsOf(lock, nowMs).entries()) {
    write(row.cells[place].firstChild, text);
    write(row.cells[place].lastChild, more.filter(Boolean).join("; "));
  }
  row.classList.toggle("late", isLate(lock, nowMs));
  row.classList.toggle("ending", lock.expiresAtMs - nowMs < 3000);
}

const rows = () => [...at("rows").rows];

function render() {
  const view = found ?? live;
  const all = [...view.rows.values()];
  const wanted = view === live ? at("search").value.normalize().toLowerCase() : "";
  const isMeant = ({ key, owner }) => `${key}\n${owner ?? ""}`.toLowerCase().includes(wanted);
  const locks = all.filter(isMeant).sort(ORDERS[at("order").value]);
  together = Map.groupBy(all, grantOf);
  renderRows(locks);
  renderSlots(all);
  renderList("waiting", "Waiting in this process", view.waiting.filter(isMeant), (queue) => [
    make("bdi", {}, printable(queue.key)),
    `${plural(queue.count, "call")} waiting, since ${moment(queue.sinceMs)}`,
  ]);
  const count = plural(all.length, "lock");
  write(at("title"), view.title);
  write(at("count"), locks.length === all.length ? count : `${locks.length} of ${count}`);
  at("live").hidden = view === live;
  at("more").hidden = !view.next;
  at("locks").hidden = locks.length === 0;
  at("empty").hidden = locks.length > 0 || view.next === undefined || !at("trouble").hidden;
  write(at("empty"), whyEmpty(wanted !== ""));
  renderPeriod(view);
}

function renderRows(locks) {
  const focused = document.activeElement;
  const ids = new Set(locks.map(idOf));
  for (const row of rows()) if (!ids.has(row.id)) row.remove();
  let place = at("rows").firstElementChild;
  for (const lock of locks) {
    const row = Object.assign(at(idOf(lock)) ?? makeRow(lock), { lock });
    paint(row);
    if (row === place) place = place.nextElementSibling;
    else at("rows").insertBefore(row, place);
  }
  // A row that was moved has lost the focus; one that is gone leaves it to the heading.
  if (focused !== document.activeElement) (focused.isConnected ? focused : at("title")).focus();
}

function renderList(id, title, entries, contentOf) {
  const lines = entries.map((entry) => make("li", { className: "line" }, ...contentOf(entry)));
  at(id).hidden = lines.length === 0;
  at(id).replaceChildren(make("h2", {}, title), make("ul", {}, ...lines));
}

function renderSlots(all) {
  const slots = all.filter(({ slot }) => slot !== undefined);
  const keys = [...Map.groupBy(slots, ({ key }) => key)];
  renderList("slots", "Slots in use", keys, ([key, locks]) => {
    const used = locks.map(({ slot }) => slot).sort((a, b) => a - b);
    const most = Math.max(used.at(-1), slotsSeen.get(key) ?? 0);
    slotsSeen.set(key, most);
    const ariaLabel = `Slots of ${printable(key)} in use`;
    const words = `${plural(used.length, "slot")} in use: ${used.join(", ")}`;
    const bar = make("meter", { max: most, value: used.length, ariaLabel });
    return [make("bdi", {}, printable(key)), bar, words];
  });
}

function whyEmpty(isFiltered) {
  if (found !== undefined) return "No lock was found with this text in its key or its owner.";
  if (isFiltered) return "No lock shown here has this text. “Search the store” looks at all.";
  return `No lock is held in this store (${live.store}). One appears here as soon as a program gets it: try “npx syncguard exec demo -- sleep 10”. If your service holds one now, it uses another store, another database, or another key prefix, table or collection than this page.`;
}

function renderPeriod({ done, texts }) {
  at("period").hidden = done === undefined || (done === null && !live.allowsChanges);
  if (done === undefined) return;
  const key = texts.search;
  const words = done
    ? `done for ${printable(done.due)}, at ${new Date(done.doneAtMs).toLocaleString()}.`
    : "no period is stored as done.";
  const setText = "That period counts as done, whatever was before: nobody does it, or an earlier one, any more."; // prettier-ignore
  const clearText = "Any period is to be done again, as if nothing had ever been done.";
  at("period").replaceChildren(
    make("p", {}, make("bdi", {}, printable(key)), `: ${words}`),
    ...changeButton("Mark a period as done", key, setText, { do: "mark", key }),
    ...(done ? changeButton("Mark none as done", key, clearText, { do: "clear", key }) : []),
  );
}

/** Texts go in headers, encoded: URLs are in logs, and in the history of browsers. */
async function ask(method, query, texts) {
  const headers = {};
  for (const [name, text] of Object.entries(texts)) {
    headers[`syncguard-${name}`] = encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"));
  }
  try {
    const response = await fetch(location.pathname + query, { method, headers });
    return { ok: response.ok, ...(await response.json()) };
  } catch {
    return { ok: false, message: "the server does not answer" };
  }
}

/** When each of them began to wait, by this machine's clock. */
const sinceWhen = (waiting = []) =>
  waiting.map((queue) => ({ ...queue, sinceMs: Date.now() - queue.waitedMs }));
const byHash = (rows) => rows.map((lock) => [lock.lockIdHash, lock]);

async function look(texts) {
  const { ok, message, rows = [], waiting, ...rest } = await ask("GET", "?locks", texts);
  write(at("said"), ok ? `${plural(rows.length, "lock")} found` : `Not found out: ${message}`);
  if (!ok) return;
  const title = `${texts.search ? "Found" : "Locks"}, as of ${moment(Date.now())}`;
  found = { ...rest, title, texts, waiting: sinceWhen(waiting), rows: new Map(byHash(rows)) };
  render();
  at("title").focus();
}

function showLive() {
  found = undefined;
  write(at("said"), "");
  render();
}

at("tools").onsubmit = (event) => {
  event.preventDefault();
  if (at("search").value === "") showLive();
  else void look({ search: at("search").value });
};
at("search").oninput = showLive;
at("order").onchange = render;
at("live").onclick = () => {
  at("search").value = "";
  showLive();
};
at("more").onclick = () => look({ ...(found ?? live).texts, after: (found ?? live).next });

/** A button that changes something after a question, if that is allowed. A period that is to be marked is asked for. */
function changeButton(action, name, text, texts) {
  if (!live.allowsChanges) return [];
  const onclick = () => {
    write(at("asked"), `${action}: ${apart(name)}`);
    write(at("told"), text);
    write(at("confirm"), action);
    at("due-label").hidden = texts.do !== "mark";
    Object.assign(at("due"), { value: "", required: texts.do === "mark" });
    Object.assign(at("dialog"), { returnValue: "", onclose: () => change(texts) });
    at("dialog").showModal();
  };
  const ariaLabel = `${action} ${printable(name)}`;
  return [make("button", { type: "button", className: "danger", ariaLabel, onclick }, action)];
}

async function change(texts) {
  if (at("dialog").returnValue !== "yes") return;
  const { ok, message, done } = await ask("POST", "", { ...texts, due: at("due").value });
  write(at("said"), ok ? `Done: ${message}` : `Nothing was changed: ${message}`);
  if (ok) found?.rows.delete(texts.lock);
  if (done !== undefined && found !== undefined) found.done = done;
  render();
}

at("cancel").onclick = () => at("dialog").close();

function hear({ type, set, gone, nowMs, ...news }) {
  at("trouble").hidden = type !== "trouble";
  if (type === "trouble") {
    write(at("why"), printable(`${news.code}: ${news.message}. What helps: ${news.fix}`));
    write(at("state"), "Waiting for the store");
  } else {
    Object.assign(live, news, { waiting: sinceWhen(news.waiting) });
    if (type === "all") live.rows.clear();
    for (const hash of gone) live.rows.delete(hash);
    for (const [hash, lock] of byHash(set)) live.rows.set(hash, lock);
    if (nowMs !== null) clockOffsetMs = nowMs - Date.now();
    const isSlow = news.everyMs > 2000;
    const pace = isSlow ? `, every ${duration(news.everyMs)}: the store takes long to answer` : "";
    write(at("store"), `in ${live.store}`);
    write(at("state"), `Live${pace}`);
  }
  render();
}

function connect() {
  const events = new EventSource(`${location.pathname}?events`);
  events.onmessage = ({ data }) => hear(JSON.parse(data));
  events.onerror = () => {
    write(at("state"), "The connection to the server is lost: trying again");
    // The browser tries again by itself, unless the server has refused.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
  };
}

const headOf = (name) => make("th", { id: name, scope: "col", role: "columnheader" }, name);
at("head").append(...COLUMNS.map(headOf));
at("order").append(...Object.keys(ORDERS).map((name) => make("option", {}, name)));
setInterval(() => rows().forEach(paint), 500);
connect();
