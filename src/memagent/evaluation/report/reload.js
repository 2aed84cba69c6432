
// A page that loads itself anew keeps open what was open.
(function () {
  const place = "memagent-open:" + location.pathname;
  const all = () => Array.from(document.querySelectorAll("details[id]"));
  try {
    const open = JSON.parse(sessionStorage.getItem(place) || "[]");
    all().forEach((one) => { one.open = open.includes(one.id); });
    addEventListener("pagehide", () => {
      sessionStorage.setItem(place, JSON.stringify(all().filter((one) => one.open).map((one) => one.id)));
    });
  } catch (refused) { /* a browser that stores nothing: they close */ }
})();
