(() => {
  const byId = (id) => document.getElementById(id);
  const filter = byId("filter"), rows = byId("rows"), place = document.querySelector("#curves .chart");
  let drawn = place.dataset.spec;
  const sift = () => {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    byId("shown").textContent = wanted.length ? `${count} of ${rows.rows.length} rows` : "";
  };
  const refresh = async () => {
    try {
      const now = await (await fetch("/live")).json();
      if (rows.innerHTML !== now.rows) { rows.innerHTML = now.rows; sift(); }
      byId("curves").hidden = !now.curves;
      const spec = JSON.stringify(now.curves);
      if (now.curves && spec !== drawn && window.drawChart) { drawn = place.dataset.spec = spec; await window.drawChart(place); }
      byId("when").textContent = "Up to date.";
    } catch (error) {
      byId("when").textContent = "The server does not answer any more.";
    }
    setTimeout(refresh, 2000);
  };
  filter.addEventListener("input", sift);
  setTimeout(refresh, 2000);
})();
