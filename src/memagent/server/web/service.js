"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff\u{e0000}-\u{e007f}]+/gu;
  const AGAIN = 3000; // ms until a lost service is tried again
  const DRAW = 60; // ms between two looks of the memory
  const TELL = 10000; // ms between two sentences for those who listen

  // Text of others. Characters that act instead of standing are named, as the server does it.
  function put(node, text) {
    let last = 0;
    node.replaceChildren();
    for (const found of text.matchAll(ODD)) {
      node.append(text.slice(last, found.index));
      const odd = document.createElement("i");
      odd.className = "odd";
      odd.textContent = [...found[0]].slice(0, 6).map((one) => "U+" + one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")).join(" ");
      node.append(odd);
      last = found.index + found[0].length;
    }
    node.append(text.slice(last));
    return node;
  }

  const say = (node, text) => { node.textContent = text; node.hidden = !text; };
  const counted = (number) => number.toLocaleString("en");
  const size = (bytes) => bytes < 1024 ? `${bytes} bytes` : bytes < 1 << 20 ? `${Math.round(bytes / 1024)} kB` : `${+(bytes / (1 << 20)).toFixed(1)} MB`;

  function lasting(seconds) {
    if (seconds < 1) return "about 1 s left";
    if (seconds < 120) return `about ${Math.round(seconds)} s left`;
    return seconds < 7200 ? `about ${Math.round(seconds / 60)} min left` : `about ${(seconds / 3600).toFixed(1)} h left`;
  }

  function localTimes(within) {
    for (const one of within.querySelectorAll("time")) {
      one.textContent = new Date(one.dateTime).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    }
  }

  // Forms: sent without leaving the page, so that what was typed stays if they are refused.

  function trouble(form, request) {
    if (!request.status) return "The service could not be reached. What you entered is still here: try again in a moment.";
    if (request.status === 401) return "Your key is no longer accepted. Log in again in another tab, then send this once more.";
    let said = `The service answered with ${request.status}.`;
    try { said = JSON.parse(request.responseText).error.message; } catch { /* it was no JSON */ }
    const after = Number(request.getResponseHeader("Retry-After"));
    const wait = after > 3600 ? "" : after ? ` Try again in ${after} seconds.` : "";
    return said[0].toUpperCase() + said.slice(1) + (/[.!?]$/.test(said) ? "" : ".") + wait;
  }

  function tooLarge(form) {
    const limit = Number(form.dataset.limit || Infinity);
    let all = 0;
    for (const value of new FormData(form).values()) all += 1024 + (typeof value === "string" ? new Blob([value]).size : value.size);
    return all > limit ? `That is ${size(all)}, and the service takes at most ${size(limit)} at a time.` : "";
  }

  function refuse(form, text) {
    const place = form.querySelector(".error");
    if (!place && text) alert(text);
    if (!place) return;
    say(place, text);
    if (text) place.scrollIntoView({ block: "nearest" });
  }

  function send(form) {
    const button = form.querySelector("button:not([type])"), sending = form.querySelector(".sending");
    const large = tooLarge(form);
    if (large) return refuse(form, large);
    const request = new XMLHttpRequest();
    button.disabled = true;
    refuse(form, "");
    if (sending) say(sending, "Sending …");
    if ("stay" in form.dataset) button.textContent = "Cancelling …"; // the turn that is under way is waited for
    request.upload.onprogress = (event) => {
      if (sending && event.lengthComputable && event.total > 1e6) say(sending, `Sending … ${Math.floor(100 * event.loaded / event.total)} %`);
    };
    request.onloadend = () => {
      if (request.status >= 200 && request.status < 300) {
        if ("stay" in form.dataset) return; // that the reading has ended is told by its events
        location.assign(JSON.parse(request.responseText).next);
        return;
      }
      button.disabled = false;
      if ("stay" in form.dataset) button.textContent = "Cancel";
      if (sending) say(sending, "");
      refuse(form, trouble(form, request));
    };
    request.open("POST", form.action);
    request.setRequestHeader("Accept", "application/json");
    request.send(new FormData(form));
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!("send" in form.dataset)) return;
    event.preventDefault();
    if (!form.dataset.sure || confirm(form.dataset.sure)) send(form);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) event.target.form.requestSubmit();
  });

  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // come back to by "back"

  // Files: chosen or dropped.

  function files() {
    const input = $("files"), drop = $("drop"), list = $("chosen");
    if (!input) return;

    function show() {
      const some = input.files.length > 0;
      list.replaceChildren(...[...input.files].map((file) => {
        const item = document.createElement("li"), name = document.createElement("bdi"), bytes = document.createElement("span");
        put(name, file.name);
        bytes.className = "size";
        bytes.textContent = size(file.size);
        item.append(name, bytes);
        return item;
      }));
      list.hidden = $("none").hidden = !some;
      $("pasted").hidden = some;
      $("text").disabled = some;
      refuse($("ask"), some ? tooLarge($("ask")) : "");
    }

    function dropped(event) {
      event.preventDefault();
      drop.classList.remove("over");
      const items = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry());
      if (items.some((item) => item && item.isDirectory)) return refuse($("ask"), "A folder cannot be dropped here: drop the files in it.");
      if (!event.dataTransfer.files.length) return;
      input.files = event.dataTransfer.files;
      show();
      $("question").focus();
    }

    input.addEventListener("change", show);
    $("none").addEventListener("click", () => { input.value = ""; show(); input.focus(); });
    const carries = (event) => [...event.dataTransfer.types].includes("Files");
    document.addEventListener("dragover", (event) => { if (carries(event)) { event.preventDefault(); drop.classList.add("over"); } });
    document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("over"); });
    document.addEventListener("drop", (event) => { if (carries(event)) dropped(event); });
    if (input.files.length) show(); // a browser keeps them when the page is loaded again
  }

  // A reading that is not over: its turns as they come.

  function follow() {
    const live = $("live");
    if (!live) return;
    const id = live.dataset.id, title = document.title;
    const split = (text) => text.split(/\r\n?|\n/);
    let before = "", memory = "", changed = 0, stale = false, last = null, drawing = 0, told = 0, source = null;

    function draw() {
      clearTimeout(drawing);
      drawing = 0;
      if (!last || !live.isConnected) return;
      const { turns: done, left } = last, all = done + left;
      $("state").textContent = "Reading";
      $("turns").textContent = `turn ${counted(done)} of ${counted(all)}`;
      $("left").textContent = last.seconds_left ? lasting(last.seconds_left) : "";
      $("bar").max = all;
      $("bar").value = done;
      document.title = `${Math.floor(100 * done / all)} % · ${title}`;
      if (stale) lines();
      stale = false;
      if (Date.now() - told > TELL) {
        told = Date.now();
        $("said").textContent = `Turn ${done} of ${all}. ${$("left").textContent}`;
      }
    }

    // What the last change brought is marked. Lines that stay are the same elements, so that a selection in them stays too.
    function lines() {
      const box = $("memory"), old = new Set(split(before)), known = new Map();
      for (const node of box.querySelectorAll(".said")) known.set(node.dataset.text, [...(known.get(node.dataset.text) || []), node]);
      box.replaceChildren(...split(memory).map((line) => {
        const node = (known.get(line) || []).shift() || put(document.createElement("div"), line);
        node.dataset.text = line;
        node.className = old.has(line) ? "said" : "said new";
        return node;
      }));
      $("changed").textContent = `changed in turn ${counted(changed)}`;
    }

    function turn(event) {
      const values = JSON.parse(event.data);
      if ("memory" in values && values.memory !== memory) {
        [before, memory, changed, stale] = [memory, values.memory, values.turn, true];
      }
      last = { turns: values.turn, left: 0, ...last, ...values }; // what is left is not said of a reading that has ended
      drawing = drawing || setTimeout(draw, DRAW);
    }

    async function ended() {
      source.close();
      draw();
      document.title = title;
      while (!(await refresh(id))) await new Promise((go) => setTimeout(go, AGAIN));
    }

    // After an answer that is no stream: has the reading been deleted, or the browser logged out?
    async function lost() {
      try {
        const found = await fetch(`/v1/readings/${id}`);
        if (found.status === 404) return say($("lost"), "This reading was deleted.");
        if (found.status === 401) return location.reload();
        open();
      } catch { setTimeout(lost, AGAIN); }
    }

    function open() {
      source = new EventSource(`/v1/readings/${id}/events`);
      source.addEventListener("open", () => say($("lost"), ""));
      source.addEventListener("turn", turn);
      source.addEventListener("end", ended);
      source.addEventListener("error", () => {
        say($("lost"), "The connection to the service is lost. The reading goes on there; trying again …");
        if (source.readyState === EventSource.CLOSED) setTimeout(lost, AGAIN);
      });
    }
    open();
  }

  // Puts the reading and the history as they are now in place of those that are shown. False: the service is not there.
  async function refresh(id) {
    let found;
    try { found = await fetch(id ? `/?reading=${id}` : location.href); } catch { return false; }
    if (found.status === 401) location.reload();
    if (!found.ok) return found.status < 500;
    const page = new DOMParser().parseFromString(await found.text(), "text/html");
    const focused = document.activeElement;
    for (const name of id ? ["reading", "history"] : ["history"]) {
      const now = page.getElementById(name), old = $(name);
      if (!now || (name === "history" && old.contains(focused))) continue;
      const inside = old.contains(focused);
      old.replaceWith(now);
      localTimes(now);
      if (name === "reading") {
        const answer = now.querySelector(".answer"), status = now.querySelector(".status");
        $("said").textContent = [status, answer].filter(Boolean).map((one) => one.textContent).join(" ").slice(0, 1000);
        if (inside) $("asked").focus({ preventScroll: true });
      }
    }
    return true;
  }

  // Other readings of the history may end while this page is open.
  setInterval(() => {
    if (!document.hidden && $("history") && $("history").querySelector("[data-open]") && !$("live")) refresh("");
  }, 5000);

  localTimes(document);
  files();
  follow();
})();
