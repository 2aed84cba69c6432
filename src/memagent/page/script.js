
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const steps = [...document.querySelectorAll(".step")];
  const slider = $("slider");
  let at = -1;

  function show(index) {
    index = Math.max(0, Math.min(steps.length - 1, index));
    if (steps[at]) steps[at].classList.remove("current");
    at = index;
    steps[at].classList.add("current");
    slider.value = at;
    const said = `${steps[at].dataset.name} (step ${at + 1} of ${steps.length})`;
    slider.setAttribute("aria-valuetext", said);
    $("where").textContent = said;
    // A button that is disabled while it has the focus loses it.
    $("previous").setAttribute("aria-disabled", at === 0);
    $("next").setAttribute("aria-disabled", at === steps.length - 1);
  }

  // Marks what a link leads to: a quote by its class, other text by a highlight that leaves the page as it is.
  function point(link) {
    for (const one of document.querySelectorAll("mark.on")) one.classList.remove("on");
    const highlights = CSS.highlights;
    if (highlights) highlights.delete("shown");
    if (!link) return;
    if (link.dataset.quote) {
      for (const one of document.querySelectorAll(`mark[data-quotes~="${link.dataset.quote}"]`)) one.classList.add("on");
    } else if (link.dataset.end && highlights) {
      const range = new Range();
      range.setStartAfter($(link.getAttribute("href").slice(1)));
      range.setEndBefore($(link.dataset.end));
      highlights.set("shown", new Highlight(range));
    }
  }

  function arrive() {
    const target = $(location.hash.slice(1));
    if (target && steps.includes(target)) show(steps.indexOf(target));
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link) return;
    const target = $(link.getAttribute("href").slice(1));
    if (target && target.classList.contains("step")) show(steps.indexOf(target));
    if (link.dataset.quote || link.dataset.end) point(link);
  });

  if (!location.hash) $("check").focus({ preventScroll: true }); // so that the keys scroll it; the link to the document comes next

  if (steps.length) {
    document.documentElement.classList.add("stepped");
    $("controls").hidden = steps.length < 2;
    slider.addEventListener("input", () => show(Number(slider.value)));
    $("previous").addEventListener("click", () => show(at - 1));
    $("next").addEventListener("click", () => show(at + 1));
    const changed = steps.findLastIndex((one) => one.querySelector(".diff"));
    show(changed < 0 ? steps.length - 1 : changed);
    arrive();
    addEventListener("hashchange", arrive);
  }
})();
