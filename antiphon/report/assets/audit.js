// Filters of the table of verdicts. The page is whole without it.
"use strict";

(() => {
  const form = document.querySelector(".run-filters");
  if (!form) return;
  const rows = [...document.querySelectorAll(".runs tbody tr")];
  const apply = () => {
    const name = form.elements.run.value.toLowerCase(), verdict = form.elements.verdict.value;
    let count = 0;
    for (const row of rows) {
      const fits = (!verdict || row.dataset.verdict === verdict) && row.dataset.run.toLowerCase().includes(name);
      row.hidden = !fits;
      count += fits ? 1 : 0;
    }
    form.querySelector("output").textContent = `${count} of ${rows.length} runs shown`;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
})();
