(() => {
  const levels = ["#b2182b", "#ef8a62", "#fddbc7", "#d1e5f0", "#67a9cf", "#2166ac"];
  const cell = (row, text, tag = "td") => {
    const made = document.createElement(tag);
    made.textContent = text;
    row.append(made);
    return made;
  };
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = parseFloat(text.replace(/[$,]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  document.addEventListener("click", (event) => {
    const head = event.target.closest("table.sortable th");
    if (!head) return;
    const body = head.closest("table").tBodies[0];
    const sign = head.dataset.sign === "1" ? -1 : 1;
    head.dataset.sign = sign;
    const compare = (a, b) => {
      const [x, y] = [key(a, head.cellIndex), key(b, head.cellIndex)];
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    };
    body.append(...[...body.rows].sort(compare));
  });
  const inflate = async (text) => {
    const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };
  const mean = (scores) => {
    const known = scores.filter((each) => each !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  };
  for (const all of document.querySelectorAll(".all")) {
    inflate(all.dataset.rows).then(({ id, arms, rows }) => {
      const most = 200;
      const [search, differ, place] = [all.querySelector("[type=search]"), all.querySelector("[type=checkbox]"), all.querySelector(".wide")];
      const draw = () => {
        const wanted = search.value.toLowerCase();
        const found = rows.map((row, number) => ({ row, number, means: row[2].map(mean) })).filter(({ row, means }) => {
          const known = means.filter((each) => each !== null);
          if (differ.checked && !(Math.max(...known) > Math.min(...known))) return false;
          return !wanted || row[0].toLowerCase().includes(wanted) || row[1].toLowerCase().includes(wanted);
        });
        const table = document.createElement("table");
        table.className = "sortable";
        const head = table.createTHead().insertRow();
        for (const name of ["case", "input", ...arms]) cell(head, name, "th");
        const body = table.createTBody();
        for (const { row, number, means } of found.slice(0, most)) {
          const line = body.insertRow();
          cell(line, row[0]);
          const input = document.createElement("span");
          input.className = "input";
          input.textContent = row[1];
          cell(line, "").append(input);
          means.forEach((value, arm) => {
            const shown = cell(line, "");
            if (value !== null) {
              const mark = document.createElement("i");
              mark.style.background = levels[Math.min(5, Math.floor(value * 6))];
              shown.append(mark, value.toFixed(2));
            } else shown.textContent = "—";
            shown.title = `${id}.t-${arms[arm]}-${number}-0`;
          });
        }
        const count = document.createElement("p");
        count.textContent = found.length > most ? `${found.length} cases, the first ${most} are shown` : `${found.length} cases`;
        place.replaceChildren(count, table);
      };
      search.addEventListener("input", draw);
      differ.addEventListener("input", draw);
      draw();
      all.hidden = false;
    });
  }
})();
