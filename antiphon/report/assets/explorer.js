// The explorer of a violation's region: draws the rows, zooms, pans, filters, walks along the witness, and
// lights up a message's causal past and future. Every text goes through textContent or setAttribute.
"use strict";

(() => {
  const explorer = document.querySelector(".explorer");
  if (!explorer) return;
  const region = JSON.parse(document.getElementById("region").textContent);
  const { items, sites, arrows, absences, units, witness } = region;
  const find = (selector) => explorer.querySelector(selector);
  const findAll = (selector) => [...explorer.querySelectorAll(selector)];
  const stage = find(".stage");
  const svg = find(".stage svg");
  const said = find(".said");
  const LEVEL = 32, HEAD = 40, MARGIN = 24, OFFSET = 13, CHARACTER = 7;
  const MOST_ZOOM = 4, NAMES_SHOWN = 12;

  const columns = sites.map((_, column) => items.filter((item) => item.column === column));
  items.forEach((item, index) => (item.index = index));
  const state = { current: null, lit: null, view: null, at: -1 };
  let drawn = new Map(); // index of an item: its element and place

  // What is shown.

  const checked = (name) =>
    new Set(findAll(`input[name=${name}]:checked`).map((input) => input.value));

  function visible() {
    const members = checked("member"), kinds = checked("kind"), show = find("select[name=show]").value;
    return items.filter((item) => {
      if (!members.has(String(item.column))) return false;
      if (item.kind === "gap") return show === "all";
      if (!kinds.has(item.kind)) return false;
      return show === "all" || item.emphasis === "witness" || (show === "involved" && item.emphasis === "involved");
    });
  }

  function reveal(item) {
    const box = (name, value) => findAll(`input[name=${name}]`).find((input) => input.value === String(value));
    for (const input of [box("member", item.column), box("kind", item.kind)]) if (input) input.checked = true;
    if (!visible().includes(item)) find("select[name=show]").value = "all";
    draw();
  }

  // Drawing.

  function element(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    for (const child of children) made.append(child);
    return made;
  }

  const SHAPES = {
    send: () => element("circle", { class: "mark", r: 5 }),
    deliver: () => element("circle", { class: "mark solid", r: 5 }),
    receive: () => element("path", { class: "mark", d: "M-5,-4h10l-5,9z" }),
    stable: () => element("rect", { class: "mark solid", x: -4.5, y: -4.5, width: 9, height: 9 }),
    discard: () => element("rect", { class: "mark", x: -4.5, y: -4.5, width: 9, height: 9 }),
    missing: () => element("path", { class: "mark", d: "M-5,-5l10,10m0,-10l-10,10" }),
    gap: () => {
      const dots = [-5, 0, 5].map((cy) => element("circle", { class: "dots", cy, r: 1.3 }));
      return element("g", {}, element("rect", { class: "paper", x: -3, y: -10, width: 6, height: 20 }), ...dots);
    },
  };
  const shape = (kind) => (SHAPES[kind] || (() => element("path", { class: "mark", d: "M-6,0h12" })))();

  const SIGN = { past: "↑ ", future: "↓ ", self: "• " };
  let size = { width: 0, height: 0 };

  function draw() {
    const shown = visible();
    const kept = [...new Set(shown.map((item) => item.column))].sort((a, b) => a - b);
    const levels = [...new Set(shown.map((item) => item.level))].sort((a, b) => a - b);
    const labels = shown.map((item) => item.label.length);
    const names = kept.map((column) => Math.min(sites[column].length, region.width));
    const step = Math.max(10, ...labels, ...names) * CHARACTER + OFFSET + 36;
    const rank = new Map(kept.map((column, place) => [column, place]));
    const x = (column) => MARGIN + rank.get(column) * step;
    const y = (level) => {
      const place = levels.findIndex((each) => each >= level);
      return HEAD + (place < 0 ? levels.length : place) * LEVEL + LEVEL / 2;
    };
    size = { width: MARGIN + Math.max(kept.length, 1) * step, height: HEAD + Math.max(levels.length, 1) * LEVEL + 12 };
    const lanes = element("g", {}), lines = element("g", {}), marks = element("g", {}), heads = element("g", { class: "heads" });
    for (const column of kept) {
      const line = (style, top, bottom) =>
        lanes.append(element("line", { class: style, x1: x(column), x2: x(column), y1: top, y2: bottom }));
      line("lane", HEAD - 8, size.height - 8);
      for (const [where, top, bottom] of absences) {
        if (where !== column) continue;
        line("lane away", y(top), y(bottom));
        line("lane absence", y(top), y(bottom));
      }
    }
    drawn = new Map();
    const seen = new Set(shown.map((item) => item.index));
    // Labels avoid the arrows on their side: those leave downward and arrive from above.
    const flights = arrows.filter(([from, to]) => seen.has(from) && seen.has(to));
    const departing = new Set(flights.filter(([from, to]) => items[from].column < items[to].column).map(([from]) => from));
    const arriving = new Set(flights.filter(([from, to]) => items[from].column > items[to].column).map(([, to]) => to));
    for (const item of shown) {
      const kin = relation(item);
      const classes = [item.emphasis, item.kind, hue(item), kin].filter(Boolean).join(" ");
      const group = element("g", { class: classes, transform: `translate(${x(item.column)},${y(item.level)})`, "data-item": item.index });
      const title = element("title", {});
      title.textContent = item.details;
      group.append(title, element("circle", { class: "target", r: 12 }));
      if (item.emphasis === "witness") group.append(element("circle", { class: "ring", r: 9 }));
      group.append(shape(item.kind));
      const drop = departing.has(item.index) ? -3 : arriving.has(item.index) ? 12 : 4;
      const text = element("text", { x: OFFSET, y: drop });
      text.textContent = (SIGN[kin] || "") + item.label;
      group.append(text);
      marks.append(group);
      drawn.set(item.index, { group, x: x(item.column), y: y(item.level) });
    }
    for (const [from, to, tint] of flights) lines.append(arrow(from, to, tint));
    heads.append(element("rect", { class: "paper", x: 0, y: 0, width: Math.max(size.width, 10000), height: HEAD - 6 }));
    for (const column of kept) {
      const name = sites[column];
      const head = element("text", { class: "name", x: x(column) - 5, y: HEAD - 18 });
      head.textContent = name.length > region.width ? `${name.slice(0, region.width - 1)}…` : name;
      const title = element("title", {});
      title.textContent = name;
      head.append(title);
      heads.append(head);
    }
    svg.replaceChildren(lanes, lines, marks, heads);
    svg.classList.toggle("lit", state.lit !== null);
    find(".count").textContent = `${shown.filter((item) => item.kind !== "gap").length} of ` +
      `${items.filter((item) => item.kind !== "gap").length} rows shown`;
    mark();
    look(state.view || fitted());
  }

  const hue = (item) => (item.hue !== null && item.hue < 4 && item.kind !== "missing" ? `hue${item.hue}` : "");

  function arrow(from, to, tint) {
    const a = drawn.get(from), b = drawn.get(to);
    const length = Math.max(Math.hypot(b.x - a.x, b.y - a.y), 1);
    const ux = (b.x - a.x) / length, uy = (b.y - a.y) / length;
    const tip = [b.x - 9 * ux, b.y - 9 * uy], back = [tip[0] - 8 * ux, tip[1] - 8 * uy];
    const points = [tip, [back[0] - 3.5 * uy, back[1] + 3.5 * ux], [back[0] + 3.5 * uy, back[1] - 3.5 * ux]];
    const kins = [relation(items[from]), relation(items[to])];
    const kin = kins[0] === kins[1] ? kins[0] : "apart";
    const style = [tint !== null && tint < 4 ? `hue${tint}` : "", state.lit ? kin : ""].join(" ");
    return element("g", { class: `flight ${style}` },
      element("path", { class: `arrow ${style}`, d: `M${a.x},${a.y} L${back[0]},${back[1]}` }),
      element("polygon", { class: `head ${style}`, points: points.map((point) => point.join(",")).join(" ") }));
  }

  // Causality: what a site delivered or sent before a send precedes it. Rows of one step are unordered.

  const tells = (item) => item.kind === "send" || item.kind === "deliver";
  const covers = (item, unit) => item.units[0] <= unit && unit < item.units[1];

  function spread(begin, next) {
    const found = new Set(begin), queue = [...begin];
    while (queue.length) {
      for (const unit of next(queue.pop())) {
        if (found.has(unit)) continue;
        found.add(unit);
        queue.push(unit);
      }
    }
    for (const unit of begin) found.delete(unit);
    return found;
  }

  const unitsOf = (item) => Array.from({ length: item.units[1] - item.units[0] }, (_, i) => item.units[0] + i);
  const about = new Map(units.map((_, unit) => [unit, []]));
  for (const item of items) if (tells(item)) for (const unit of unitsOf(item)) about.get(unit).push(item);

  function before(unit) {
    const sends = about.get(unit).filter((item) => item.kind === "send");
    return sends.flatMap((send) =>
      columns[send.column].filter((item) => tells(item) && item.step < send.step).flatMap(unitsOf));
  }

  function after(unit) {
    return about.get(unit).flatMap((row) =>
      columns[row.column].filter((item) => item.kind === "send" && item.step > row.step).flatMap(unitsOf));
  }

  function light(item) {
    const self = unitsOf(item);
    if (!self.length) return unlight();
    const past = spread(self, before), future = spread(self, after);
    state.lit = { self: new Set(self), past, future };
    const all = new Set(items.flatMap(unitsOf));
    const amount = (set) => [...set].reduce((sum, unit) => sum + units[unit][1], 0);
    const counts = [past, future].map(amount);
    const apart = amount(all) - amount(new Set([...self, ...past, ...future]));
    const name = self.map((unit) => units[unit][0]).slice(0, 2).join(", ") + (self.length > 2 ? " …" : "");
    listed(".past", past);
    listed(".future", future);
    find(".kin").hidden = false;
    find(".kin h4").textContent = `Around ${name}`;
    draw();
    say(`${item.details}. ${counts[0]} precede it, ${counts[1]} follow it, ${apart} are concurrent, of the messages shown here.`);
  }

  function listed(selector, set) {
    const names = [...set].sort((a, b) => a - b).map((unit) => units[unit][0]);
    const more = names.length - NAMES_SHOWN;
    find(selector).textContent = names.length
      ? names.slice(0, NAMES_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "") : "none here";
  }

  function unlight() {
    state.lit = null;
    find(".kin").hidden = true;
    draw();
  }

  function relation(item) {
    if (!state.lit) return "";
    if (!tells(item) && item.kind !== "receive" && item.kind !== "missing") return "apart";
    const own = unitsOf(item);
    for (const kin of ["self", "past", "future"]) if (own.some((unit) => state.lit[kin].has(unit))) return kin;
    return "apart";
  }

  // The view: which part of the drawing the stage shows.

  const room = () => ({ width: stage.clientWidth || 800, height: stage.clientHeight || 500 });

  function fitted() {
    const { width, height } = room();
    const zoom = Math.min(width / size.width, height / size.height, 1);
    return { x: 0, y: 0, zoom: Math.max(zoom, 0.1) };
  }

  function look(view) {
    const { width, height } = room();
    const zoom = Math.min(Math.max(view.zoom, 0.1), MOST_ZOOM);
    const wide = width / zoom, high = height / zoom;
    const held = (at, length, extent) => Math.min(Math.max(at, Math.min(0, (extent - length) / 2)), Math.max(extent - length, Math.min(0, (extent - length) / 2)));
    state.view = { x: held(view.x, wide, size.width), y: held(view.y, high, size.height), zoom };
    svg.setAttribute("viewBox", `${state.view.x} ${state.view.y} ${wide} ${high}`);
    const heads = svg.querySelector(".heads");
    if (heads) heads.setAttribute("transform", `translate(0,${Math.max(state.view.y, 0)})`);
    svg.dataset.zoom = zoom.toFixed(2);
  }

  function zoomBy(factor, at) {
    const { x, y, zoom } = state.view, { width, height } = room();
    const where = at || { x: width / 2, y: height / 2 };
    const next = Math.min(Math.max(zoom * factor, 0.1), MOST_ZOOM);
    look({ x: x + where.x / zoom - where.x / next, y: y + where.y / zoom - where.y / next, zoom: next });
  }

  function panBy(dx, dy) {
    const { x, y, zoom } = state.view;
    look({ x: x + dx / zoom, y: y + dy / zoom, zoom });
  }

  function centre(item, zoom = state.view.zoom) {
    const place = drawn.get(item.index), { width, height } = room();
    if (place) look({ x: place.x + 60 - width / zoom / 2, y: place.y - height / zoom / 2, zoom });
  }

  // The current row, and the way along the witness.

  function say(words) {
    said.textContent = words;
  }

  function mark() {
    for (const { group } of drawn.values()) group.classList.remove("current");
    const place = state.current && drawn.get(state.current.index);
    if (place) place.group.classList.add("current");
    findAll(".steps button").forEach((button, at) =>
      at === state.at ? button.setAttribute("aria-current", "step") : button.removeAttribute("aria-current"));
  }

  function choose(item, far = true) {
    state.current = item;
    state.at = witness.indexOf(item.index);
    if (!drawn.has(item.index)) reveal(item);
    mark();
    if (far) centre(item, Math.max(state.view.zoom, 0.8));
    say(item.details);
  }

  function walk(by) {
    if (!witness.length) return;
    const from = state.at < 0 && by < 0 ? 0 : state.at;
    choose(items[witness[(from + by + witness.length) % witness.length]]);
  }

  function move(across, down) {
    if (!state.current || !drawn.has(state.current.index)) {
      return choose(items[witness[0] ?? 0]);
    }
    const here = drawn.get(state.current.index);
    const there = [...drawn.entries()].map(([index, place]) => ({ item: items[index], dx: place.x - here.x, dy: place.y - here.y }));
    const ahead = there.filter(({ dx, dy }) => (across ? dx * across > 0 : dx === 0 && dy * down > 0));
    const cost = ({ dx, dy }) => (across ? Math.abs(dx) * 1000 + Math.abs(dy) : Math.abs(dy));
    const next = ahead.sort((a, b) => cost(a) - cost(b))[0];
    if (next) choose(next.item);
  }

  const steps = find(".steps");
  witness.forEach((index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${sites[items[index].column]}: ${items[index].label}`;
    button.addEventListener("click", () => choose(items[index]));
    const entry = document.createElement("li");
    entry.append(button);
    steps.append(entry);
  });

  const actions = {
    in: () => zoomBy(1.25),
    out: () => zoomBy(0.8),
    whole: () => look(fitted()),
    next: () => walk(1),
    previous: () => walk(-1),
    clear: () => { state.current = null; state.at = -1; unlight(); say("Nothing is chosen."); },
    light: () => state.current && light(state.current),
  };
  for (const button of findAll("button[data-do]")) button.addEventListener("click", actions[button.dataset.do]);

  const keys = {
    "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.whole, n: actions.next, p: actions.previous,
    Escape: actions.clear, Enter: actions.light, " ": actions.light,
    ArrowUp: () => move(0, -1), ArrowDown: () => move(0, 1), ArrowLeft: () => move(-1, 0), ArrowRight: () => move(1, 0),
  };
  const pans = { ArrowUp: [0, -60], ArrowDown: [0, 60], ArrowLeft: [-60, 0], ArrowRight: [60, 0] };
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = event.shiftKey && pans[event.key] ? () => panBy(...pans[event.key]) : keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  let drag = null;
  svg.addEventListener("pointerdown", (event) => {
    drag = { x: event.clientX, y: event.clientY, far: false };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!drag || !(event.buttons & 1)) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.far && Math.hypot(dx, dy) < 4) return;
    if (!drag.far) svg.setPointerCapture(event.pointerId);
    drag = { x: event.clientX, y: event.clientY, far: true };
    panBy(-dx, -dy);
  });
  svg.addEventListener("click", (event) => {
    const moved = drag && drag.far;
    drag = null;
    if (moved) return;
    const group = event.target.closest("[data-item]");
    if (!group) return actions.clear();
    choose(items[Number(group.dataset.item)], false);
    light(state.current);
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // without a key the wheel scrolls the page
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - box.left, y: event.clientY - box.top });
  }, { passive: false });

  find("form").addEventListener("change", draw);
  for (const button of findAll("button[data-all]")) {
    button.addEventListener("click", () => {
      for (const input of findAll("input[name=member]")) input.checked = button.dataset.all === "yes";
      draw();
    });
  }
  window.addEventListener("resize", () => look(state.view));

  explorer.hidden = false;
  for (const swatch of findAll("svg.swatch")) swatch.append(shape(swatch.dataset.kind));
  draw();
  if (witness.length) centre(items[witness[0]], Math.max(fitted().zoom, 0.9));
})();
