// One dialog for everything that can be enlarged; Esc, the button and a click beside it close it.
const scaleproofDialog = (() => {
  "use strict";
  const dialog = document.createElement("dialog");
  const bar = document.createElement("div");
  const body = document.createElement("div");
  bar.className = "bar";
  dialog.append(bar, body);
  document.body.append(dialog);
  let moves = null;

  const press = (text, action) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", action);
    bar.append(button);
    return button;
  };
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && moves) { event.preventDefault(); moves(step); }
  });

  return {
    // Show nodes under a name; `move(step)`, where given, goes to the one before or after.
    open(name, nodes, move = null, small = false) {
      moves = move;
      bar.replaceChildren();
      if (move) {
        press("← Previous", () => move(-1));
        press("Next →", () => move(1));
      }
      const close = press("Close (Esc)", () => dialog.close());
      dialog.setAttribute("aria-label", name);
      dialog.classList.toggle("small", small);
      body.replaceChildren(...nodes);
      if (!dialog.open) dialog.showModal();
      close.focus();
    },
  };
})();
