// The page of a run under way: asks its server once a second for what is new, and shows it.
// Words from the run reach the page as text only.
(() => {
  "use strict";
  const POLL_MS = 1000, HIDDEN_MS = 5000, GONE_AFTER = 3, MARKS = 2000, EVENTS = 60, RECENT = 12, LINES = 8;
  const words = JSON.parse(document.getElementById("live-words").textContent);
  const layouts = JSON.parse(document.getElementById("chart-data").textContent);
  const at = (id) => document.getElementById(id);
  const NOTHING = { step: 0, events: 0, epoch: "", thinned: 0 };
  let known = NOTHING, points = [], marks = [], failures = 0, seen = "";

  const element = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const inBoth = (name, said, className) => {
    const made = element(name, null, className);
    for (const lang of ["en", "ja"]) {
      const part = element("span", said[lang]);
      part.lang = lang;
      made.append(part);
    }
    return made;
  };
  const forChart = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const replicaName = (number) => ({
    "@en": words.replica.en.replace("{number}", number), "@ja": words.replica.ja.replace("{number}", number),
  });

  // Another run, or this one from an earlier step on.
  const forget = (title) => {
    known = NOTHING;
    points = [];
    marks = [];
    for (const name of ["live-events", "live-replicas", "live-gpus"]) at(name).replaceChildren();
    for (const place of document.querySelectorAll(".tiles dd")) place.textContent = "–";
    document.querySelector("h1").replaceChildren(inBoth("span", title));
    for (const lang of ["en", "ja"]) window.nonuniform.words[lang].title = title[lang];
    document.title = title[document.documentElement.dataset.lang];
  };

  // Which old points stay is for the server to say.
  const remember = (news) => {
    if (news.kept) {
      const kept = new Set(news.kept);
      points = points.filter((point) => kept.has(point.step));
    }
    for (const [step, time, loss, tokens, degrees, shares, power] of news.points) {
      points.push({ step, time, loss, tokens, degrees, shares, power });
    }
    for (const [step, kind, gpu] of news.marks) marks.push({ step, kind, gpu });
    marks = marks.slice(-MARKS);
    const step = points.length ? points[points.length - 1].step : 0;
    known = { step, events: news.told, epoch: news.epoch, thinned: news.thinned };
  };

  const showState = (name, reason) => {
    const key = name + reason;
    if (key === seen) return;
    seen = key;
    const place = at("live-state");
    place.className = "live-state " + name;
    place.replaceChildren(inBoth("span", words.status[name]));
    if (reason) place.append(": ", element("bdi", reason, "from-file"));
  };

  const number = (value, digits) => value === null || value === undefined ? "–"
    : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

  const showTiles = (news) => {
    const last = points[points.length - 1];
    at("live-generation").textContent = number(news.generation, 0);
    if (!last) return;
    const recent = points.slice(-1 - RECENT);
    const before = recent[0];
    const tokens = recent.slice(1).reduce((sum, point) => sum + point.tokens, 0);
    const rate = last.time > before.time ? tokens / (last.time - before.time) : null;
    at("live-step").textContent = number(last.step, 0) + (news.planned ? " / " + number(news.planned, 0) : "");
    at("live-loss").textContent = number(last.loss, 4);
    at("live-rate").textContent = number(rate, 0);
    at("live-time").textContent = number(last.time, 1) + " s";
  };

  const showReplicas = () => {
    const last = points[points.length - 1];
    if (!last) return;
    at("live-replicas").replaceChildren(...last.degrees.map((degree, replica) => {
      const row = element("tr");
      const name = replicaName(replica);
      const head = inBoth("th", { en: name["@en"], ja: name["@ja"] });
      head.scope = "row";
      row.append(head, element("td", degree, "n"), element("td", last.shares[replica] ?? 0, "n"));
      return row;
    }));
  };

  const showGpus = (gpus) => {
    const groups = new Map();
    for (const [gpu, state] of gpus) {
      const replica = gpu.split("/")[0];
      if (!groups.has(replica)) groups.set(replica, element("li"));
      const made = element("span", gpu, "gpu " + state);
      const said = words.state[state] ?? { en: state, ja: state };
      made.title = said[document.documentElement.dataset.lang];
      made.append(inBoth("span", { en: " " + said.en, ja: " " + said.ja }, "unseen"));
      groups.get(replica).append(made);
    }
    at("live-gpus").replaceChildren(...groups.values());
  };

  const showEvents = (events) => {
    const body = at("live-events");
    for (const event of events) {
      const row = element("tr", null, event.kind === "failed" ? "marked" : "");
      const told = element("td", event.reason);
      if (event.took.en) told.append(element("br"), inBoth("span", event.took, "note"));
      row.append(element("td", number(event.time_s, 2), "n"), element("td", event.step, "n"),
        inBoth("td", event.name), element("td", event.gpu), told);
      body.prepend(row);
    }
    while (body.children.length > EVENTS) body.lastChild.remove();
  };

  const line = (replica, what) => ({
    type: "scatter", mode: "lines", name: replicaName(replica),
    x: points.map((point) => point.step), y: points.map((point) => point[what][replica] ?? 0),
    line: { color: words.colours[replica % words.colours.length],
      dash: words.dashes[replica % words.dashes.length], shape: "hv", width: 3 },
    opacity: 0.85,
  });

  // That of the last step there is up to this one.
  const lossAt = (step) => {
    let found = null;
    for (const point of points) {
      if (point.step > step && found !== null) break;
      found = point.loss ?? found;
    }
    return found;
  };

  const lossTraces = () => {
    const marked = (kind, name, symbol, color) => {
      const found = marks.filter((mark) => mark.kind === kind);
      return { type: "scatter", mode: "markers", name: { "@en": words[name].en, "@ja": words[name].ja },
        x: found.map((mark) => mark.step), y: found.map((mark) => lossAt(mark.step)),
        text: found.map((mark) => forChart(mark.gpu)), hovertemplate: "GPU %{text}, %{x}",
        marker: { symbol, size: 11, color } };
    };
    return [
      { type: "scatter", mode: "lines", name: { "@en": words.loss.en, "@ja": words.loss.ja },
        x: points.map((point) => point.step), y: points.map((point) => point.loss),
        line: { color: words.colours[0], width: 2 } },
      marked("failed", "lost", "x", "#8f2d14"), marked("joined", "joined", "circle", "#00785a"),
    ];
  };

  const showCharts = () => {
    const replicas = points.reduce((most, point) => Math.max(most, point.degrees.length), 0);
    const shown = [...Array(Math.min(replicas, LINES)).keys()];
    const draw = (name, data) => window.nonuniform.draw(name, { ...layouts[name], data });
    draw("live-loss", lossTraces());
    draw("live-degrees", shown.map((replica) => line(replica, "degrees")));
    const power = points.reduce((most, point) => Math.max(most, point.power.length), 0);
    at("figure-live-power").hidden = power === 0;
    if (power) draw("live-power", [...Array(Math.min(power, LINES)).keys()].map((r) => line(r, "power")));
  };

  const ask = async () => {
    let more = false, over = false;
    try {
      const query = new URLSearchParams(known);
      const answer = await fetch("/data?" + query, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      if (news.anew) forget(news.title);
      remember(news);
      showState(news.status, news.reason);
      showTiles(news);
      showReplicas();
      showGpus(news.gpus);
      showEvents(news.events);
      if (news.points.length || news.events.length || news.anew) showCharts();
      failures = 0;
      more = news.more;
      over = !more && ["done", "failed"].includes(news.status);
    } catch {
      failures += 1;
      if (failures >= GONE_AFTER) showState("gone", "");
    }
    if (!over) setTimeout(ask, more ? 0 : document.hidden || failures ? HIDDEN_MS : POLL_MS);
  };

  at("figure-live-power").hidden = true;
  showState("running", "");
  ask();
})();
