import { words } from "/demo/words.js";

const at = (id) => document.getElementById(id);
const figures = { sent: 0, replayed: 0, refused: 0 };
const english = new Map([...document.querySelectorAll("[data-t]")].map((part) => [part, part.textContent]));
const names = ["coffee machine", "bicycle bell", "desk lamp", "tea pot", "umbrella", "wall clock"];
let language = navigator.language.startsWith("zh") ? "zh" : "en";
let order, key;

const word = (name) => words[language][name];
const side = () => document.querySelector("input[name=side]:checked").value;

function speak(chosen) {
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  for (const [part, text] of english) part.textContent = words[language][part.dataset.t] ?? text;
  for (const button of document.querySelectorAll("[data-lang]")) {
    button.setAttribute("aria-pressed", String(button.dataset.lang === chosen));
  }
  refresh();
}

function newOrder() {
  const name = names[Math.floor(Math.random() * names.length)];
  key = crypto.randomUUID();
  order = { order: `${name} ${key.slice(0, 4)}`, amount: 4900 };
  at("order-name").textContent = order.order;
  at("order-price").textContent = (order.amount / 100).toFixed(2);
  at("key").textContent = key;
  Object.assign(figures, { sent: 0, replayed: 0, refused: 0 });
  at("answers").replaceChildren();
  refresh();
}

/** Sends one payment and shows what came back; null if the reply was cut off. */
async function send(body, signal) {
  figures.sent += 1;
  show();
  try {
    const headers = { "content-type": "application/json", "idempotency-key": key, "accept-language": language };
    const answer = await fetch(side(), { method: "POST", headers, body: JSON.stringify(body), signal });
    const text = await answer.text();
    const replayed = answer.headers.get("idempotent-replayed") === "true";
    if (replayed) figures.replayed += 1;
    else if (!answer.ok) figures.refused += 1;
    tell(replayed ? "same" : answer.ok ? "ran" : "no", replayed ? word("same") : answer.ok ? word("ran") : String(answer.status), brief(text));
    return answer;
  } catch {
    figures.refused += 1;
    tell("no", word("cutoff"), word("lost"));
    return null;
  } finally {
    refresh();
  }
}

/** A problem is long; its title says enough here. */
function brief(text) {
  try {
    return JSON.parse(text).title ?? text;
  } catch {
    return text;
  }
}

function tell(kind, chip, text) {
  const line = document.createElement("li");
  const label = document.createElement("span");
  label.className = `chip ${kind}`;
  label.textContent = chip;
  const what = document.createElement("code");
  what.textContent = text;
  line.append(label, what);
  at("answers").prepend(line);
  while (at("answers").children.length > 60) at("answers").lastChild.remove();
}

function show() {
  for (const name of ["sent", "replayed", "refused"]) at(name).textContent = figures[name];
}

async function refresh() {
  show();
  const { latest } = await (await fetch("/demo/charges")).json();
  const mine = latest.filter((charge) => charge.order === order.order);
  at("charged").textContent = mine.length;
  at("charged-box").className = mine.length > 1 ? "bad" : "good";
  at("verdict").className = `verdict ${mine.length > 1 ? "bad" : "good"}`;
  at("verdict").textContent = mine.length === 0 ? word("none") : mine.length === 1 ? word("one") : word("many")(mine.length);
  at("ledger").replaceChildren(...latest.slice(0, 7).map((charge) => row(charge, mine)));
}

function row(charge, mine) {
  const line = document.createElement("tr");
  const own = mine.some((other) => other.number === charge.number);
  line.className = own ? (mine.length > 1 ? "mine again" : "mine") : "";
  const time = new Date(charge.at).toLocaleTimeString(language);
  const service = charge.protected ? word("behind") : word("hand");
  for (const text of [charge.number, charge.order, (charge.amount / 100).toFixed(2), service, time]) {
    const cell = document.createElement("td");
    cell.textContent = text;
    line.append(cell);
  }
  return line;
}

/** Cuts the connection while the bank is still thinking, and retries with the same key, as a good client does. */
async function cutAndRetry() {
  const cut = new AbortController();
  setTimeout(() => cut.abort(), 150);
  await send(order, cut.signal);
  await new Promise((resolve) => setTimeout(resolve, 300));
  await send(order);
}

// The button stays enabled: clicking twice is the point of this page.
at("pay").addEventListener("click", () => send(order));
at("burst").addEventListener("click", () => Promise.all(Array.from({ length: 50 }, () => send(order))));
at("cut").addEventListener("click", cutAndRetry);
at("change").addEventListener("click", () => send({ ...order, amount: order.amount * 10 }));
at("new").addEventListener("click", newOrder);
for (const input of document.querySelectorAll("input[name=side]")) input.addEventListener("change", newOrder);
for (const button of document.querySelectorAll("[data-lang]")) button.addEventListener("click", () => speak(button.dataset.lang));
newOrder();
speak(language);
