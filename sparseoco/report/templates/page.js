"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = () => {
    const axis = { gridcolor: colour("--rule"), linecolor: colour("--quiet"), tickcolor: colour("--quiet") };
    return {
      font: { color: colour("--ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
      hoverlabel: { bgcolor: colour("--wash"), bordercolor: colour("--rule"), font: { color: colour("--ink") } },
      xaxis: axis, yaxis: axis,
    };
  };
  const merged = (layout, theme) => {
    const both = { ...layout, ...theme };
    for (const key of ["xaxis", "yaxis"]) both[key] = { ...layout[key], ...theme[key] };
    return both;
  };
  const config = { responsive: true, displayModeBar: false };
  const plots = [...document.querySelectorAll(".plot")].map((place) => {
    const spec = JSON.parse(document.getElementById(place.id + "-spec").textContent);
    return { place, spec };
  });
  const draw = () => plots.forEach(({ place, spec }) => Plotly.react(place, spec.data, merged(spec.layout, themed()), config));
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
      });
      table.tBodies[0].append(...rows);
    }));
  }
})();
