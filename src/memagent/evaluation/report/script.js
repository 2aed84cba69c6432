"use strict";
// Paper cannot be clicked: everything is open while printing. A link to a reading opens it.
(function () {
  const all = () => Array.from(document.querySelectorAll("details"));
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all().filter((one) => !one.open);
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  reveal();
  const button = document.getElementById("toggle");
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const readings = Array.from(document.querySelectorAll("details.reading"));
      const open = readings.some((one) => !one.open);
      readings.forEach((one) => { one.open = open; });
      button.textContent = open ? "Close all" : "Open all";
    });
  }
})();
