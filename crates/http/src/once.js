// onlyonce: forms submitted once, fetch calls with a key. <form method="post" data-once>
(() => {
"use strict";
const base = new URL(".", document.currentScript ? document.currentScript.src : location.href).pathname;
const key = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
const sent = new WeakSet();

// Of the form itself: a field named "action" hides the form's own.
const own = (form, name, ...args) => {
  const it = Reflect.get(HTMLFormElement.prototype, name, form);
  return typeof it === "function" ? it.apply(form, args) : it;
};

// The hidden field, made if the server has not rendered it.
const field = (form) => {
  const name = own(form, "getAttribute", "data-once") || "_once";
  let input = own(form, "querySelector", `input[name="${CSS.escape(name)}"]`);
  if (!input) {
    input = Object.assign(document.createElement("input"), { type: "hidden", name });
    own(form, "append", input);
  }
  return input;
};

const token = async (form) => {
  const input = field(form);
  if (input.value) return;
  const path = new URL(own(form, "action"), location.href).pathname;
  const asked = new URLSearchParams({ method: own(form, "method").toUpperCase(), path });
  const answer = await fetch(`${base}tokens?${asked}`, { method: "POST", credentials: "same-origin" });
  const issued = await answer.json();
  if (issued.field !== input.name) throw new Error(issued.detail || `no token is read from ${input.name}`);
  // The first may be sent.
  input.value ||= issued.token;
};

const busy = (form, is) => {
  sent[is ? "add" : "delete"](form);
  own(form, "toggleAttribute", "aria-busy", is);
  for (const it of own(form, "elements"))
    if (it.type === "submit" || it.type === "image") it.disabled = is;
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!own(form, "matches", "form[data-once]")) return;
  if (sent.has(form)) return event.preventDefault();
  sent.add(form);
  // Later, because a disabled button is not submitted.
  if (field(form).value) return setTimeout(() => busy(form, !event.defaultPrevented));
  event.preventDefault();
  busy(form, true);
  try {
    await token(form);
    busy(form, false);
    own(form, "requestSubmit", event.submitter);
  } catch (detail) {
    busy(form, false);
    own(form, "dispatchEvent", new CustomEvent("once:failed", { bubbles: true, detail }));
  }
});

// Back again: it may be sent again, with the token that it has.
addEventListener("pageshow", () => document.querySelectorAll("form[data-once]").forEach((form) => {
  busy(form, false);
  token(form).catch(() => {});
}));

window.once = {
  key,
  // Retry with the same `once: key` in the options; without it, a call has a new key.
  fetch: async (url, options = {}) => {
    const call = new Request(url, options);
    if (!call.headers.has("Idempotency-Key")) call.headers.set("Idempotency-Key", options.once || key());
    return fetch(call);
  },
};
})();
