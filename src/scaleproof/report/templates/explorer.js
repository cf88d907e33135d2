// The verdict on each image: filters over packed data, a page of rows at a time.
(() => {
  "use strict";
  const place = document.getElementById("explorer");
  if (!place) return;
  const data = JSON.parse(place.querySelector(".verdicts").textContent);
  const form = place.querySelector("form");
  const body = place.querySelector("tbody");
  const pager = place.querySelector(".pager");
  const output = form.querySelector("output");
  const size = 20;
  const fixed = { ".": "right", "-": "–", "!": "wrong", "_": "not attacked" };
  const count = data.labels.length / data.width;
  const token = (text, k) => text.slice(k * data.width, (k + 1) * data.width);
  const number = (state) => parseInt(state, 36);
  const attacks = data.columns.slice(data.clean ? 1 : 0);
  const right = (k) => !data.clean || token(data.columns[0], k)[0] === ".";
  const broken = (column, k) => !".-_".includes(token(column, k)[0]);
  const told = (state) => fixed[state[0]] ?? `→ ${data.classes[number(state)]}`;

  const verdicts = (choice, k) => {
    const [kind, which] = choice.split(" ");
    const hits = attacks.filter((column) => broken(column, k)).length;
    if (kind === "wrong") return !right(k);
    if (kind === "holds") return right(k) && hits === 0;
    if (kind === "broken") return hits > 0;
    if (kind === "by") return broken(attacks[which], k);
    if (kind === "only") return broken(attacks[which], k) && hits === 1;
    if (kind === "differ") return hits > 0 && hits < attacks.length;
    return true;
  };
  const taken = (prediction, k) => data.columns.some((column) => {
    const state = token(column, k);
    return !(state[0] in fixed) && number(state) === Number(prediction);
  });

  let found = [];
  let first = 0;
  const draw = () => {
    body.replaceChildren(...found.slice(first, first + size).map((k) => {
      const row = document.createElement("tr");
      const texts = [String(k), data.classes[number(token(data.labels, k))], ...data.columns.map((column) => told(token(column, k)))];
      texts.forEach((text, position) => {
        const cell = document.createElement(position ? "td" : "th");
        if (!position) cell.scope = "row";
        cell.textContent = text;
        row.append(cell);
      });
      return row;
    }));
    const last = Math.min(first + size, found.length);
    where.textContent = found.length ? ` Images ${first + 1} to ${last} of ${found.length}` : " No image fits.";
    before.disabled = first === 0;
    after.disabled = last >= found.length;
  };
  const update = () => {
    const wanted = Object.fromEntries(new FormData(form));
    found = [];
    for (let k = 0; k < count; k += 1) {
      if (wanted.label && number(token(data.labels, k)) !== Number(wanted.label)) continue;
      if (wanted.prediction && !taken(wanted.prediction, k)) continue;
      if (!wanted.verdict || verdicts(wanted.verdict, k)) found.push(k);
    }
    first = 0;
    output.textContent = `${found.length} of ${count} images (${((100 * found.length) / count).toFixed(1)}%)`;
    draw();
  };
  const press = (text, step) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", () => { first += step; draw(); });
    return button;
  };
  const before = press("← Previous", -size);
  const after = press("Next →", size);
  const where = document.createElement("span");
  pager.replaceChildren(before, after, where);
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    for (const box of form.querySelectorAll("select")) box.selectedIndex = 0;
    update();
  });
  form.hidden = false;
  update();
})();
