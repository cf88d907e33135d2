// The switch between light and dark; without it the page follows the system.
(() => {
  "use strict";
  const root = document.documentElement;
  const names = ["auto", "light", "dark"];
  const signs = { auto: "◐", light: "☀", dark: "☾" };
  const read = () => {
    try { return localStorage.getItem("scaleproof-theme") || "auto"; } catch { return "auto"; }
  };
  const keep = (name) => {
    try { localStorage.setItem("scaleproof-theme", name); } catch { /* private windows keep nothing */ }
  };
  const button = document.createElement("button");
  button.type = "button";
  button.className = "theme";
  const apply = (name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = `${signs[name]} Theme: ${name}`;
    button.dataset.name = name;
  };
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(button.dataset.name) + 1) % names.length];
    keep(next);
    apply(next);
  });
  apply(names.includes(read()) ? read() : "auto");
  document.querySelector("header").append(button);

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
