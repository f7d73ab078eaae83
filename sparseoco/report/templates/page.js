"use strict";
(() => {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  document.body.append(tip);
  const hide = () => { tip.style.display = "none"; };
  const show = (text, event) => {
    const [head, ...rest] = text.split("\n").filter(Boolean);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }));
    for (const line of rest) tip.append(Object.assign(document.createElement("div"), { textContent: line }));
    tip.style.display = "block";
    const { offsetWidth: width, offsetHeight: height } = tip;
    const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
    tip.style.left = Math.max(left, 4) + "px";
    tip.style.top = Math.min(Math.max(event.clientY - height - 12, 4), innerHeight - height - 4) + "px";
  };
  const within = (svg, event) => {
    const place = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / place.width;
    return [(event.clientX - place.left) * scale, (event.clientY - place.top) * scale];
  };

  for (const figure of document.querySelectorAll("figure.chart")) {
    const svg = figure.querySelector(".plot > svg"), at = svg.querySelector(".at");
    const series = [...svg.querySelectorAll("g.s[data-at]")].map((group) => ({
      group, head: group.dataset.head, labels: group.dataset.labels.split("\t"),
      points: group.dataset.at.split(" ").filter(Boolean).map((pair) => pair.split(",").map(Number)),
    }));
    const leave = () => { at.style.display = "none"; hide(); };
    const nearest = (event) => {
      const [x, y] = within(svg, event);
      let best = null, least = 42 ** 2;
      for (const own of series) {
        if (own.group.classList.contains("off")) continue;
        own.points.forEach(([px, py], k) => {
          const distance = (px - x) ** 2 + (py - y) ** 2;
          if (distance < least) [least, best] = [distance, [own, k, px, py]];
        });
      }
      if (!best) return leave();
      const [own, k, px, py] = best;
      at.setAttribute("cx", px);
      at.setAttribute("cy", py);
      at.style.display = "block";
      show((own.head ? own.head + "\n" : "") + own.labels[k], event);
    };
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", leave);
    for (const button of figure.querySelectorAll(".legend button")) {
      const own = [...svg.querySelectorAll(`g.s[data-key="${button.dataset.key}"]`)];
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", on);
        own.forEach((group) => group.classList.toggle("off", !on));
      });
      button.addEventListener("pointerenter", () => { svg.classList.add("dimmed"); own.forEach((group) => group.classList.add("lit")); });
      button.addEventListener("pointerleave", () => { svg.classList.remove("dimmed"); own.forEach((group) => group.classList.remove("lit")); });
    }
  }

  const value = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.classList.contains("number") ? parseFloat(cell.textContent.replaceAll(",", "")) : cell.textContent;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => {
          const [x, y] = [value(a, column), value(b, column)];
          return sign * (typeof x === "number" ? x - y : x.localeCompare(y));
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  for (const slider of document.querySelectorAll(".slider")) {
    const sets = JSON.parse(slider.dataset.sets), [first] = sets;
    const [range, wrong, missed] = slider.querySelectorAll("input"), out = slider.querySelector("p");
    const per_cent = (part, whole) => whole ? (100 * part / whole).toFixed(1) + " %" : "–";
    const cost = ({ positives }, [, tp, fp]) => fp * wrong.value + (positives - tp) * missed.value;
    const update = () => {
      const chosen = first.points[range.value], [threshold] = chosen;
      const lines = sets.map((own) => {
        const point = own === first ? chosen : own.points.find(([p]) => p >= threshold), [, tp, fp] = point;
        return `${own.name}: precision ${per_cent(tp, tp + fp)}, recall ${per_cent(tp, own.positives)}, ` +
          `${per_cent(tp + fp, own.rows)} predicted, cost ${(1000 * cost(own, point) / own.rows).toFixed(1)} per 1,000 documents`;
      });
      const recall = chosen[1] / (first.positives || 1);
      lines.unshift(threshold > 1 ? "Threshold above all" : `Threshold ${(100 * threshold).toFixed(1)} %`);
      if (recall) lines.push(`In the run file, for this recall: threshold = { recall = ${Math.floor(1e4 * recall) / 1e4} }`);
      out.replaceChildren(...lines.flatMap((line) => [line, document.createElement("br")]));
    };
    range.max = first.points.length - 1;
    range.value = first.points.findIndex(([p]) => p >= slider.dataset.start);
    slider.addEventListener("input", update);
    slider.querySelector("button").addEventListener("click", () => {
      const costs = first.points.map((point) => cost(first, point));
      range.value = costs.indexOf(Math.min(...costs));
      update();
    });
    slider.hidden = false;
    update();
  }
})();
