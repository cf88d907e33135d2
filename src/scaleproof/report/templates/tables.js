// Tables whose columns can be sorted: up, down, and back to the order of the report.
(() => {
  "use strict";
  const number = (text) => {
    const found = text.replace(/,/g, "").replace("−", "-").match(/[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
    return found ? parseFloat(found[0]) : NaN;
  };
  const compare = (column, numeric) => (a, b) => {
    const [x, y] = [a, b].map((row) => row.cells[column].textContent.trim());
    if (!numeric) return x.localeCompare(y, undefined, { numeric: true });
    const [p, q] = [number(x), number(y)];
    if (Number.isNaN(p) || Number.isNaN(q)) return Number.isNaN(p) - Number.isNaN(q);
    return p - q;
  };
  for (const table of document.querySelectorAll("table:not([data-fixed])")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    if (rows.length < 3 || heads.length < 3) continue;
    // What is marked as the result stays at the end; failed checks may move.
    const fixed = rows.filter((row) => row.classList.contains("strong") && !row.classList.contains("failed"));
    const free = rows.filter((row) => !fixed.includes(row));
    const pinned = rows.slice(-fixed.length).every((row) => fixed.includes(row)) ? fixed : [];
    const moving = pinned.length ? free : rows;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const next = { ascending: "descending", descending: "" }[head.getAttribute("aria-sort")] ?? "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        const order = [...moving];
        if (next) {
          head.setAttribute("aria-sort", next);
          order.sort(compare(column, head.classList.contains("number")));
          if (next === "descending") order.reverse();
        }
        body.append(...order, ...pinned);
      });
    });
  }
})();
