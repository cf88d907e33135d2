// Figures: the value under the pointer, arrow keys that read the values, and a larger version.
(() => {
  "use strict";
  const narrow = matchMedia("(max-width: 34rem)");
  const near = 28;

  const words = (series, point) => {
    const parts = [];
    const head = document.createElement("b");
    head.textContent = series.name || (series.axis ? series.panel : point[2]);
    const where = series.axis ? `${series.axis}: ${point[2]}` : "";
    const what = `${series.name || !series.axis ? series.panel + ": " : ""}${point[3]}`;
    for (const text of [what, where]) if (text) parts.push(document.createTextNode(text), document.createElement("br"));
    return [head, ...parts.slice(0, -1)];
  };

  // Let a frame with an image read out its points.
  const readOut = (frame, points) => {
    const image = frame.querySelector("img");
    const dot = document.createElement("span");
    const tip = document.createElement("div");
    dot.className = "dot";
    tip.className = "tip";
    tip.setAttribute("role", "status");
    dot.hidden = tip.hidden = true;
    frame.append(dot, tip);
    const current = () => points[narrow.matches ? "narrow" : "wide"];
    let at = [0, -1];

    const place = (point) => [
      image.offsetLeft + (point[0] / 1000) * image.clientWidth,
      image.offsetTop + (point[1] / 1000) * image.clientHeight,
    ];
    const hide = () => { dot.hidden = tip.hidden = true; };
    const show = (which) => {
      at = which;
      const series = current()[which[0]];
      const point = series.at[which[1]];
      const [x, y] = place(point);
      tip.replaceChildren(...words(series, point));
      dot.hidden = tip.hidden = false;
      dot.style.left = `${x}px`;
      dot.style.top = `${y}px`;
      const room = frame.clientWidth - tip.offsetWidth - 4;
      tip.style.left = `${Math.max(4, Math.min(room, x + 14))}px`;
      tip.style.top = `${y > tip.offsetHeight + 20 ? y - tip.offsetHeight - 12 : y + 16}px`;
    };
    frame.addEventListener("pointermove", (event) => {
      const box = frame.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left - frame.clientLeft, event.clientY - box.top - frame.clientTop];
      let best = null;
      let least = near;
      current().forEach((series, s) => series.at.forEach((point, k) => {
        const [px, py] = place(point);
        // A bar is met anywhere along its length.
        const gap = series.axis ? Math.hypot(px - x, py - y) : Math.max(Math.abs(py - y), (x - px) / 3);
        if (gap < least) { least = gap; best = [s, k]; }
      }));
      if (best) show(best); else hide();
    });
    frame.addEventListener("pointerleave", hide);
    frame.addEventListener("blur", hide);
    frame.addEventListener("keydown", (event) => {
      const all = current();
      const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Escape") hide();
      if (!moves || event.target !== frame) return;
      event.preventDefault();
      event.stopPropagation();
      const s = (at[0] + moves[0] + all.length) % all.length;
      const k = Math.max(0, Math.min(all[s].at.length - 1, at[1] + moves[1]));
      show([s, k]);
    });
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `${image.alt} Arrow keys read the values.`);
  };

  for (const figure of document.querySelectorAll("figure.card")) {
    const frame = figure.querySelector(".frame");
    const points = JSON.parse(figure.querySelector(".points").textContent);
    const known = points.wide.length > 0 && points.narrow.length > 0;
    const zoom = document.createElement("button");
    zoom.type = "button";
    zoom.className = "zoom";
    zoom.textContent = "⤢";
    const title = figure.querySelector("figcaption").textContent;
    zoom.setAttribute("aria-label", `Enlarge: ${title}`);
    const enlarge = () => {
      const large = document.createElement("div");
      large.className = "frame";
      large.append(figure.querySelector("picture").cloneNode(true));
      const caption = document.createElement("p");
      caption.textContent = title;
      scaleproofDialog.open(title, [large, caption]);
      if (known) readOut(large, points);
    };
    zoom.addEventListener("click", enlarge);
    figure.querySelector("img").addEventListener("click", enlarge);
    frame.append(zoom);
    if (known) readOut(frame, points);
  }
})();
