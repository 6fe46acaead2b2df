(async () => {
  const places = document.querySelectorAll(".chart");
  const packed = document.getElementById("vega").content.textContent;
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
  // Colours are variables of the style sheet: charts follow it into the dark and onto paper.
  const text = { labelColor: "var(--text)", titleColor: "var(--text)", labelFontSize: 12, titleFontSize: 12,
                 titleFontWeight: 500 };
  const config = {
    background: null, font: "system-ui, sans-serif",
    view: { stroke: null }, text: { color: "var(--text)" }, rule: { color: "var(--muted)" },
    axis: { ...text, gridColor: "var(--line)", domainColor: "var(--muted)", tickColor: "var(--muted)", labelLimit: 160 },
    legend: { ...text, orient: "top", title: null, labelLimit: 320, columns: window.innerWidth < 600 ? 1 : 4 },
    header: text,
  };
  window.drawChart = async (place) => {
    const spec = JSON.parse(place.dataset.spec);
    if (!spec) return;
    place.textContent = "";
    // `ast`: Vega interprets its expressions, because the page's policy forbids to compile them.
    await window.vegaEmbed(place, spec, { renderer: "svg", ast: true, actions: false, config });
    place.dataset.drawn = "";
  };
  for (const place of places) await window.drawChart(place);
})();
