// The gallery: filters, order, a larger look on hover or focus, and a dialog on a click.
(() => {
  "use strict";
  const section = document.getElementById("gallery");
  if (!section) return;
  const form = section.querySelector("form");
  const list = section.querySelector(".gallery");
  const figures = [...list.querySelectorAll("figure")];
  const output = form.querySelector("output");
  const peek = document.createElement("div");
  peek.className = "peek";
  peek.hidden = true;
  peek.setAttribute("aria-hidden", "true");
  document.body.append(peek);

  const order = {
    "": () => 0,
    label: (a, b) => a.dataset.label.localeCompare(b.dataset.label),
    attack: (a, b) => a.dataset.attack.localeCompare(b.dataset.attack),
    margin: (a, b) => b.dataset.margin - a.dataset.margin,
    size: (a, b) => a.dataset.size - b.dataset.size,
  };
  const visible = () => [...list.children].filter((figure) => !figure.hidden);
  const update = () => {
    const wanted = Object.fromEntries(new FormData(form));
    const fits = (figure) => ["label", "prediction", "attack"].every(
      (name) => !wanted[name] || figure.dataset[name] === wanted[name],
    );
    for (const figure of figures) figure.hidden = !fits(figure);
    list.append(...[...figures].sort(order[wanted.sort || ""]));
    output.textContent = `${visible().length} of ${figures.length} pictures`;
  };
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const box of form.querySelectorAll("select")) box.selectedIndex = 0;
    update();
  });
  form.hidden = false;
  update();

  const facts = (figure) => {
    const text = document.createElement("p");
    text.append(...[...figure.querySelector("figcaption").cloneNode(true).childNodes]);
    const triple = figure.querySelector(".triple").cloneNode(true);
    return [triple, text];
  };
  let shown = null;
  const place = (figure) => {
    const box = figure.getBoundingClientRect();
    const left = Math.max(8, Math.min(innerWidth - peek.offsetWidth - 8, box.left + box.width / 2 - peek.offsetWidth / 2));
    const below = box.bottom + peek.offsetHeight + 12 < innerHeight;
    peek.style.left = `${left}px`;
    peek.style.top = `${below ? box.bottom + 6 : Math.max(8, box.top - peek.offsetHeight - 6)}px`;
  };
  const show = (figure) => {
    shown = figure;
    peek.replaceChildren(...facts(figure));
    peek.hidden = false;
    place(figure);
  };
  const hide = () => { shown = null; peek.hidden = true; };
  const enlarge = (figure) => {
    hide();
    const move = (step) => {
      const all = visible();
      enlarge(all[(all.indexOf(figure) + step + all.length) % all.length]);
    };
    scaleproofDialog.open(`Image ${figure.dataset.index}`, facts(figure), move, true);
  };
  for (const figure of figures) {
    const triple = figure.querySelector(".triple");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "open";
    button.setAttribute("aria-label", `Enlarge image ${figure.dataset.index}, true class ${figure.dataset.label}`);
    triple.replaceWith(button);
    button.append(triple);
    button.addEventListener("click", () => enlarge(figure));
    button.addEventListener("focus", () => { if (button.matches(":focus-visible")) show(figure); });
    button.addEventListener("blur", hide);
    button.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") show(figure); });
    button.addEventListener("pointerleave", hide);
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", () => { if (shown) place(shown); }, { passive: true });
})();
