"use strict";
(() => {
  const table = document.getElementById("rows");
  const body = table && table.tBodies[0];
  if (!body) return;
  const rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells);
  const key = (row, at) => row.cells[at].dataset.v ?? row.cells[at].textContent;
  let sorted = -1, down = false;
  const sort = (at) => {
    down = sorted === at && !down;
    sorted = at;
    const isNumber = heads[at].classList.contains("n");
    const compare = isNumber
      ? (a, b) => (a === "") - (b === "") || (down ? b - a : a - b)
      : (a, b) => (down ? -1 : 1) * a.localeCompare(b, undefined, { numeric: true });
    const keyed = rows.map((row) => [key(row, at), row]);
    keyed.sort((one, other) => compare(one[0], other[0]));
    body.append(...keyed.map((pair) => pair[1]));
    heads.forEach((head, index) => {
      if (index === at) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(at));
    head.replaceChildren(button);
  });
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Filter rows";
  search.setAttribute("aria-label", "Filter rows");
  const verdict = document.createElement("select");
  verdict.setAttribute("aria-label", "Outcome");
  const verdicts = ["", ...new Set(rows.map((row) => row.dataset.verdict))];
  verdicts.forEach((value) => verdict.append(new Option(value || "all outcomes", value)));
  const shown = document.createElement("output");
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, at) => {
      const fits = (!verdict.value || row.dataset.verdict === verdict.value) && words.every((word) => texts[at].includes(word));
      row.hidden = !fits;
      count += fits;
    });
    shown.textContent = `${count} of ${rows.length}`;
  };
  search.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  document.getElementById("filters").append(search, verdict, shown);
  filter();
})();
