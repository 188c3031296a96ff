// onlyonce: forms that are submitted once, and fetch calls with a key. <form method="post" data-once>
(() => {
  "use strict";
  const base = new URL(".", document.currentScript ? document.currentScript.src : location.href).pathname;
  const key = () => crypto.randomUUID ? crypto.randomUUID()
    : [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");

  // The hidden field of a form; made if the server has not rendered it.
  const field = (form) => {
    const name = form.dataset.once || "_once";
    let input = form.querySelector(`input[name="${CSS.escape(name)}"]`);
    if (!input) {
      input = Object.assign(document.createElement("input"), { type: "hidden", name });
      form.append(input);
    }
    return input;
  };

  const token = async (form) => {
    const input = field(form);
    if (!input.value) {
      const path = new URL(form.action, location.href).pathname;
      const asked = new URLSearchParams({ method: form.method.toUpperCase(), path });
      const answer = await fetch(`${base}tokens?${asked}`, { method: "POST", credentials: "same-origin" });
      if (!answer.ok) throw new Error(`no token: ${answer.status}`);
      input.value = (await answer.json()).token;
    }
    return input.value;
  };

  const busy = (form, is) => {
    form.onceBusy = is;
    form.toggleAttribute("aria-busy", is);
    for (const button of form.elements)
      if (button.type === "submit" || button.type === "image") button.disabled = is;
  };

  const submit = async (event) => {
    const form = event.target;
    if (!form.matches("form[data-once]")) return;
    if (form.onceBusy) return event.preventDefault();
    form.onceBusy = true;
    if (field(form).value) {
      // Later, because a disabled button would not be part of what is submitted.
      setTimeout(() => busy(form, !event.defaultPrevented));
      return;
    }
    event.preventDefault();
    const button = event.submitter;
    busy(form, true);
    try {
      await token(form);
      busy(form, false);
      form.requestSubmit(button);
    } catch (error) {
      busy(form, false);
      form.dispatchEvent(new CustomEvent("once:failed", { bubbles: true, detail: error }));
    }
  };

  // Back again: the form may be sent again, with the token that it has; what was done is not done twice.
  addEventListener("pageshow", () => document.querySelectorAll("form[data-once]").forEach((form) => {
    busy(form, false);
    token(form).catch(() => {});
  }));
  document.addEventListener("submit", submit);

  window.once = {
    key,
    // Retry with the same `once: key` in the options; without it, a call has a new key.
    fetch: (url, options = {}) => {
      const headers = new Headers(options.headers);
      if (!headers.has("Idempotency-Key")) headers.set("Idempotency-Key", options.once || key());
      return fetch(url, { ...options, headers });
    },
  };
})();
