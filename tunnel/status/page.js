"use strict";

// Brings the page up to date while somebody looks: fetches its changing part
// as the server renders it, and changes what is different.
(() => {
  const refresh = Number(document.body.dataset.refresh) * 1000;
  const note = document.getElementById("stale");
  const live = () => document.getElementById("live");
  let timer, request, typed;

  const key = (node) => node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;

  // morph makes old like fresh. Elements with a data-key are found again
  // wherever they went; what a person types into is left alone.
  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.hasAttribute("data-keep")) return;
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const keyed = new Map();
    for (const child of old.children) {
      if (key(child) !== null) keyed.set(key(child), child);
    }
    let at = old.firstChild;
    for (const want of [...fresh.childNodes]) {
      let have = null;
      if (key(want) !== null) {
        have = keyed.get(key(want));
        keyed.delete(key(want));
      } else if (at && key(at) === null && at.nodeName === want.nodeName) {
        have = at;
      }
      if (!have) {
        old.insertBefore(want, at);
        continue;
      }
      if (have === at) at = at.nextSibling;
      else old.insertBefore(have, at);
      morph(have, want);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("live");
    if (!fresh) throw new Error("the server answers with another page");
    const focused = document.activeElement;
    morph(live(), fresh);
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    document.title = fresh.dataset.title;
    note.hidden = true;
  }

  function stale(why) {
    const text = `Stale since ${live().dataset.at}: ${why}. Trying again every ${refresh / 1000} s.`;
    if (note.hidden || note.textContent !== text) note.textContent = text;
    note.hidden = false;
    live().classList.add("stale");
    if (!document.title.startsWith("Stale")) document.title = "Stale - " + document.title;
  }

  async function fetchLive(signal) {
    const response = await fetch("live" + location.search, { signal, redirect: "manual", cache: "no-store" });
    if (response.type === "opaqueredirect") throw new Error("the server wants you to sign in: reload the page");
    if (response.status === 401 || response.status === 403) throw new Error("you may no longer see this: reload the page");
    if (!response.ok) throw new Error("the server answers " + response.status);
    return response.text();
  }

  async function update() {
    clearTimeout(timer);
    if (request) request.abort();
    if (document.hidden) return;
    const mine = request = new AbortController();
    let late = false;
    const deadline = setTimeout(() => { late = true; mine.abort(); }, 3 * refresh);
    try {
      const text = await fetchLive(mine.signal);
      if (request === mine) show(text);
    } catch (error) {
      if (request === mine && (late || !mine.signal.aborted)) {
        stale(late || error instanceof TypeError ? "the server does not answer" : error.message);
      }
    } finally {
      clearTimeout(deadline);
    }
    if (request === mine && !document.hidden) timer = setTimeout(update, refresh);
  }

  function search(form) {
    clearTimeout(typed);
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (value.trim()) query.set(name, value);
    }
    history.replaceState(null, "", query.size ? "?" + query : "./");
    update();
  }

  document.addEventListener("input", (event) => {
    clearTimeout(typed);
    typed = setTimeout(search, 150, event.target.form);
  });
  document.addEventListener("submit", (event) => {
    event.preventDefault();
    search(event.target);
  });
  document.addEventListener("visibilitychange", update);
  timer = setTimeout(update, refresh);
})();
