"use strict";
(() => {
  const form = document.getElementById("passkey");
  const state = document.getElementById("state");
  const go = document.getElementById("go");
  const adds = form.dataset.task === "add";
  const toBytes = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const toText = (buffer) =>
    buffer &&
    btoa(String.fromCharCode(...new Uint8Array(buffer)))
      .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  if (!window.PublicKeyCredential) {
    state.textContent = "This browser cannot use passkeys here.";
    return;
  }
  const options = JSON.parse(form.dataset.options);
  options.challenge = toBytes(options.challenge);
  if (options.user) options.user.id = toBytes(options.user.id);
  for (const list of [options.allowCredentials, options.excludeCredentials]) {
    for (const credential of list ?? []) credential.id = toBytes(credential.id);
  }
  const ask = async () => {
    go.disabled = true;
    state.textContent = "Follow the steps that your browser shows.";
    try {
      const request = { publicKey: options };
      const given = adds
        ? await navigator.credentials.create(request)
        : await navigator.credentials.get(request);
      const { response } = given;
      form.elements.namedItem("credential").value = JSON.stringify({
        id: given.id,
        rawId: toText(given.rawId),
        type: given.type,
        response: {
          clientDataJSON: toText(response.clientDataJSON),
          ...(adds
            ? { attestationObject: toText(response.attestationObject) }
            : {
                authenticatorData: toText(response.authenticatorData),
                signature: toText(response.signature),
                userHandle: toText(response.userHandle),
              }),
        },
      });
      form.submit();
    } catch (error) {
      state.textContent =
        error.name === "InvalidStateError"
          ? "This device or password manager already has a passkey for your account."
          : "The browser returned no passkey. Try again, or go back.";
      go.disabled = false;
      go.focus();
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  go.hidden = false;
  state.textContent = "Ready when you are.";
  // Not after a refusal: the person first reads why.
  if ("start" in form.dataset) ask();
})();
