// The page of a run under way: asks its server once a second for what is new, and shows it.
// Words from the run reach the page as text only.
(() => {
  "use strict";
  const POLL_MS = 1000, HIDDEN_MS = 5000, GONE_AFTER = 3, MARKS = 2000, EVENTS = 60, RECENT = 12, LINES = 8,
    ROWS = 60, COLUMNS = 16;
  const words = JSON.parse(document.getElementById("live-words").textContent);
  const layouts = JSON.parse(document.getElementById("chart-data").textContent);
  const at = (id) => document.getElementById(id);
  const NOTHING = { step: 0, events: 0, epoch: "", thinned: 0 };
  let known = NOTHING, points = [], marks = [], failures = 0, seen = "", shown = {};

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

  // What is as it was is left alone, so that nobody loses their place in it.
  const changed = (name, value) => {
    const key = JSON.stringify([document.documentElement.dataset.lang, value]);
    if (shown[name] === key) return false;
    shown[name] = key;
    return true;
  };

  // Another run, or this one from an earlier step on.
  const forget = (title) => {
    known = NOTHING;
    points = [];
    marks = [];
    shown = {};
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
    if (!last || !changed("replicas", [last.degrees, last.shares])) return;
    at("live-replicas").replaceChildren(...last.degrees.map((degree, replica) => {
      const row = element("tr");
      const name = replicaName(replica);
      const head = inBoth("th", { en: name["@en"], ja: name["@ja"] });
      head.scope = "row";
      row.append(head, element("td", degree, "n"), element("td", last.shares[replica] ?? 0, "n"));
      return row;
    }));
  };

  const showKind = (kind) => {
    if (!changed("kind", kind)) return;
    const note = words.kind_note[kind];
    at("live-kind").hidden = !note.en;
    at("live-kind").replaceChildren(inBoth("span", note));
    for (const place of document.querySelectorAll("figure .kind")) {
      place.className = "kind kind-" + kind;
      place.replaceChildren(inBoth("span", words.kind[kind]));
    }
  };

  const showGpus = (gpus) => {
    if (!changed("gpus", gpus)) return;
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

  const filled = (sentence, gaps) => Object.fromEntries(["en", "ja"].map((lang) =>
    [lang, sentence[lang].replace(/{(\w+)}/g, (_, gap) => String(gaps[gap]))]));

  // In words, for those who cannot see the chart.
  const describe = (name, gaps) => {
    const said = points.length ? filled(words.alt[name], gaps) : words.alt.none;
    if (!changed("alt-" + name, said)) return;
    const place = at("chart-live-" + name);
    for (const lang of ["en", "ja"]) place.setAttribute("data-label-" + lang, said[lang]);
    place.setAttribute("aria-label", said[document.documentElement.dataset.lang]);
    at("alt-live-" + name).replaceChildren(inBoth("span", said));
  };

  // The newest, and before it one in so many.
  const some = (list) => {
    const nth = Math.max(1, Math.ceil(list.length / ROWS));
    return list.filter((_, index) => (list.length - 1 - index) % nth === 0);
  };

  const byReplica = (what, rows) => {
    const count = rows.reduce((most, point) => Math.max(most, point[what].length), 0);
    const columns = [...Array(Math.min(count, COLUMNS)).keys()];
    const names = columns.map(replicaName).map((name) => ({ en: name["@en"], ja: name["@ja"] }));
    return { head: [words.step, ...names],
      rows: some(rows).map((point) => [point.step, ...columns.map((replica) => point[what][replica] ?? 0)]) };
  };

  const numbersOf = {
    loss: () => ({ head: [words.step, words.time, words.loss],
      rows: some(points).map((point) => [point.step, number(point.time, 2), number(point.loss, 4)]) }),
    degrees: () => byReplica("degrees", points.filter((point, index) => index === 0 || index === points.length - 1
      || String(point.degrees) !== String(points[index - 1].degrees))),
    power: () => byReplica("power", points),
  };

  // The table behind a chart is made when somebody opens it.
  const showNumbers = (name) => {
    const place = at("numbers-live-" + name);
    if (!place.open) return;
    const { head, rows } = numbersOf[name]();
    if (!changed("numbers-" + name, rows)) return;
    const top = element("tr");
    for (const said of head) top.append(Object.assign(inBoth("th", said, "n"), { scope: "col" }));
    place.querySelector("thead").replaceChildren(top);
    place.querySelector("tbody").replaceChildren(...rows.map(([step, ...values]) => {
      const row = element("tr");
      row.append(Object.assign(element("th", step, "n"), { scope: "row" }), ...values.map((value) => element("td", value, "n")));
      return row;
    }));
  };

  const describeAll = (replicas, watched) => {
    const last = points[points.length - 1];
    const losses = points.map((point) => point.loss).filter((loss) => loss !== null);
    const [low, high] = [Math.min, Math.max].map((pick) => losses.length ? number(pick(...losses), 4) : "–");
    const count = (kind) => marks.filter((mark) => mark.kind === kind).length;
    const listed = (what) => last ? last[what].slice(0, COLUMNS).join(", ") : "";
    const step = last?.step;
    describe("loss", { step, last: number(last?.loss, 4), low, high, lost: count("failed"), joined: count("joined") });
    describe("degrees", { step, replicas, values: listed("degrees") });
    describe("power", { step, replicas: watched, values: listed("power") });
  };

  const showCharts = () => {
    const [replicas, watched] = ["degrees", "power"].map(
      (what) => points.reduce((most, point) => Math.max(most, point[what].length), 0));
    const lines = (count, what) => [...Array(Math.min(count, LINES)).keys()].map((replica) => line(replica, what));
    const draw = (name, data) => window.nonuniform.draw(name, { ...layouts[name], data });
    draw("live-loss", lossTraces());
    draw("live-degrees", lines(replicas, "degrees"));
    at("figure-live-power").hidden = watched === 0;
    if (watched) draw("live-power", lines(watched, "power"));
    describeAll(replicas, watched);
    Object.keys(numbersOf).forEach(showNumbers);
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
      showKind(news.kind);
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
  for (const name of Object.keys(numbersOf)) at("numbers-live-" + name).addEventListener("toggle", () => showNumbers(name));
  showState("running", "");
  ask();
})();
