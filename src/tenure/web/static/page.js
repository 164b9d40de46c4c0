// Keeps a page that is open true: clocks go on, parts that have changed are exchanged, keys can be copied.
// Everything works without it, by reloading.
"use strict";

(() => {
  const UNITS = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000], ["ms", 1]];
  const COME_BACK_MS = 2000;
  const QUIET_MS = 5000;
  let ahead = 0; // by how much the database's clock is ahead of this one
  let stream = null;
  let heard = 0;

  const now = () => Date.now() + ahead;
  const byId = (id) => document.getElementById(id);

  // As the server writes durations: the two largest units.
  function words(ms) {
    let left = Math.abs(ms);
    if (left >= 1000) left -= left % 1000;
    const parts = [];
    for (const [unit, size] of UNITS) {
      const count = Math.floor(left / size);
      if (count && parts.length < 2) parts.push(count + unit);
      else if (parts.length) break;
      left %= size;
    }
    return parts.join("") || "0s";
  }

  const WRITTEN = {
    when: (away) => (Math.abs(away) < 1000 ? "now" : away > 0 ? "in " + words(away) : words(away) + " ago"),
    since: (away) => words(Math.floor(Math.max(-away, 0) / 1000) * 1000),
    left: (away) => {
      const text = words(Math.floor(Math.abs(away) / 1000) * 1000);
      return away >= 0 ? text + " left" : "ran out " + text + " ago";
    },
  };

  function tick() {
    for (const time of document.querySelectorAll("time[data-clock]")) {
      const text = WRITTEN[time.dataset.clock](Date.parse(time.dateTime) - now());
      if (time.textContent !== text) time.textContent = text;
    }
    for (const bar of document.querySelectorAll("rect[data-until]")) {
      const share = Math.min(Math.max((Date.parse(bar.dataset.until) - now()) / bar.dataset.lease, 0), 1);
      bar.setAttribute("width", (share * 100).toFixed(1));
      bar.classList.toggle("low", share < 0.2);
    }
    if (stream && heard && Date.now() - heard > QUIET_MS) pulse("off", "not heard for " + words(Date.now() - heard));
  }

  // Makes one element like another, and leaves alone what is alike: focus, selection and open details stay.
  function become(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || (fresh.id && old.id !== fresh.id)) {
      old.replaceWith(fresh);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
    after.forEach((child, place) => (place < before.length ? become(before[place], child) : old.append(child)));
    before.slice(after.length).forEach((child) => child.remove());
  }

  function exchange(id, html) {
    const old = byId(id);
    if (!old) return;
    const holder = document.createElement("template");
    holder.innerHTML = html.trim();
    const fresh = holder.content.firstElementChild;
    if (fresh) become(old, fresh);
  }

  function pulse(state, text) {
    const line = byId("pulse");
    line.className = "pulse " + state;
    if (byId("pulse-words").textContent !== text) byId("pulse-words").textContent = text;
  }

  function beat(event) {
    const told = JSON.parse(event.data);
    heard = Date.now();
    if (told.clock) ahead = Date.parse(told.clock) - Date.now();
    for (const [id, html] of Object.entries(told.parts)) exchange(id, html);
    byId("trouble-line").hidden = !told.trouble;
    if (told.trouble) byId("trouble").textContent = "The database was not heard, what is shown is older: " + told.trouble;
    pulse(told.trouble ? "off" : "on", told.trouble ? "database not heard" : "live");
    tick();
  }

  function listen() {
    if (stream || document.hidden) return;
    stream = new EventSource("live?" + document.body.dataset.live);
    stream.addEventListener("beat", beat);
    stream.onerror = () => {
      if (Date.now() - heard > COME_BACK_MS) pulse("off", "server not heard");
      if (stream && stream.readyState === EventSource.CLOSED) {
        stop();
        setTimeout(listen, COME_BACK_MS);
      }
    };
  }

  function stop() {
    if (stream) stream.close();
    stream = null;
  }

  // A browser keeps few connections to one server: a page that nobody sees gives its own back.
  document.addEventListener("visibilitychange", () => (document.hidden ? (stop(), pulse("", "paused")) : listen()));
  window.addEventListener("pagehide", stop);

  for (const button of document.querySelectorAll("button[data-copies]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(byId(button.dataset.copies).textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
  }

  for (const form of document.querySelectorAll('form[method="post"]')) {
    form.addEventListener("submit", () => form.querySelector("button").setAttribute("aria-disabled", "true"));
  }

  if (document.body.dataset.live !== undefined) {
    if (document.body.dataset.clock) ahead = Date.parse(document.body.dataset.clock) - Date.now();
    listen();
    setInterval(tick, 250);
  }
})();
