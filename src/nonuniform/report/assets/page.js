// What a page does by itself: draw the charts, switch the language, fit paper. Talks to nobody.
(() => {
  "use strict";
  const root = document.documentElement;
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = read("chart-data");
  const words = read("page-words");
  const phone = matchMedia("(max-width: 600px)");
  let printing = false;

  // Words in two languages stand in the data as {"@en": ..., "@ja": ...}.
  const inLanguage = (value, lang) => {
    if (Array.isArray(value)) return value.map((item) => inLanguage(item, lang));
    if (value === null || typeof value !== "object") return value;
    if ("@en" in value) return value["@" + lang];
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, inLanguage(item, lang)]));
  };

  const draw = (name, spec) => {
    if (spec !== undefined) charts[name] = spec;
    const place = document.getElementById("chart-" + name);
    if (!place || typeof Plotly === "undefined") return;
    const { data, layout } = inLanguage(charts[name], root.dataset.lang);
    const fitted = { ...layout };
    if (printing) fitted.width = 660;
    if (phone.matches && !printing) {
      fitted.font = { ...layout.font, size: 11 };
      for (const axis of ["xaxis", "yaxis", "yaxis2"]) {
        if (!layout[axis]?.title) continue;
        fitted[axis] = { ...layout[axis], title: { ...layout[axis].title, font: { size: 11 } } };
      }
      // The legend takes more lines.
      if (layout.showlegend && data.length > 3 && layout.height) fitted.height += 26 * data.length;
      fitted.margin = { ...layout.margin, ...layout.meta?.narrow_margin };
    }
    // A finger that moves over a chart scrolls the page.
    if (matchMedia("(pointer: coarse)").matches) fitted.dragmode = false;
    Plotly.react(place, data, fitted, { responsive: true, displayModeBar: false });
  };

  const drawAll = () => Object.keys(charts).forEach((name) => draw(name));

  const speak = (lang) => {
    root.lang = lang;
    root.dataset.lang = lang;
    document.title = words[lang].title;
    for (const part of document.querySelectorAll("[data-label-en]")) {
      part.setAttribute("aria-label", part.getAttribute("data-label-" + lang));
    }
  };

  const setLanguage = (lang) => {
    speak(lang);
    drawAll();
    document.getElementById("told").textContent = words[lang].switched;
  };
  const switchLanguage = () => setLanguage(root.dataset.lang === "en" ? "ja" : "en");

  const openTables = () => {
    const tables = [...document.querySelectorAll("figure details")];
    const open = !tables.every((table) => table.open);
    tables.forEach((table) => { table.open = open; });
  };

  document.getElementById("language").addEventListener("click", switchLanguage);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target.closest("input, textarea, select")) return;
    if (event.key === "l" || event.key === "L") switchLanguage();
    if (event.key === "t" || event.key === "T") openTables();
  });
  phone.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });

  speak(root.dataset.lang);
  drawAll();
  window.nonuniform = { draw, setLanguage, switchLanguage, inLanguage, words };
})();
