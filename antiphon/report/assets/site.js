// Filters of the scoreboard, copy buttons, and open details on paper. The page is whole without it.
"use strict";

const filters = document.querySelector(".filters");
if (filters) {
  const rows = [...document.querySelectorAll(".claims tbody tr")];
  const [paper, verdict] = filters.querySelectorAll("select");
  const shown = filters.querySelector("output");
  const apply = () => {
    let count = 0;
    for (const row of rows) {
      const fits =
        (!paper.value || row.dataset.paper === paper.value) &&
        (!verdict.value || row.dataset.verdict === verdict.value);
      row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = `${count} of ${rows.length} claims shown`;
  };
  filters.hidden = false;
  filters.addEventListener("change", apply);
  apply();
}

function select(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

async function copy(button, code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    select(code);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1600);
}

for (const code of document.querySelectorAll(".command code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy the command ${code.textContent}`);
  button.addEventListener("click", () => copy(button, code));
  code.after(button);
}

const closed = [];
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    closed.push(details);
    details.open = true;
  }
});
window.addEventListener("afterprint", () => {
  while (closed.length) closed.pop().open = false;
});
