// The waterfall of one trace on a canvas: what the reader does, and what is drawn next. Drawing is done once a
// frame, of what is in view, so a hundred thousand spans scroll like ten. Text of spans goes to canvas text and to
// textContent, never to HTML.

const HEIGHT = 560;
const remembered = new Map(); // what the reader folded and zoomed, by place and trace: a redraw must not undo it
const mounted = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  if (!data) return () => {};
  let view = mounted.get(parentElement);
  if (!view?.canvas.isConnected) {
    view?.close();
    view = new Waterfall(parentElement);
    mounted.set(parentElement, view);
  }
  view.choose = (id) => setTriggerValue("span", id);
  view.take(unpack(data));
  return () => view.close();
}

class Waterfall {
  constructor(root) {
    this.root = root;
    for (const name of ["find", "found", "scroll", "spacer", "legend", "tip", "spoken"]) this[name] = root.querySelector("." + name);
    this.canvas = root.querySelector("canvas");
    this.look = new Look(this.canvas);
    this.buttons = Object.fromEntries([...root.querySelectorAll("[data-do]")].map((button) => [button.dataset.do, button]));
    this.abort = new AbortController();
    this.listen();
  }

  close() {
    this.abort.abort();
    this.watcher.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // Shows a trace, as the reader left it where it was shown before.
  take({ head, trace }) {
    const place = `${head.place}/${head.trace_id}`;
    const known = remembered.get(place);
    this.state = known ?? { top: { spans: 0, flame: 0 }, selected: -1 };
    remembered.set(place, this.state);
    this.trace = trace;
    this.mode = head.view;
    this.rows = new Rows(trace);
    this.axis = new Axis(trace, this.look);
    this.axis.recorded = head.times === "recorded";
    this.axis.isTime = this.mode !== "flame";
    this.axis.latest = Math.max(this.axis.latest, head.scale_us ?? 0);
    this.axis.show(this.axis.earliest, this.axis.latest);
    this.spans = new SpanRows(trace, this.look, this.axis, this.rows);
    this.flame = null;
    this.hover = -1;
    this.drag = null;
    if (known) this.restore();
    const told = known?.turn !== head.turn;
    this.state.turn = head.turn;
    if (told) this.state.selected = trace.find(head.selected);
    this.label();
    this.look.read();
    drawLegend(this.legend, trace, this.look, this.mode);
    this.resize();
    this.scroll.scrollTop = this.state.top[this.mode];
    if (told && this.state.selected >= 0) this.reveal(this.state.selected);
  }

  restore() {
    const { folded, onlyPath, find, from, to } = this.state;
    this.rows.folded = folded ?? new Set();
    this.rows.onlyPath = onlyPath ?? false;
    this.rows.lay();
    this.rows.search(find ?? "");
    this.find.value = find ?? "";
    if (to !== undefined) this.axis.show(from, to);
  }

  keep() {
    const { rows, axis } = this;
    Object.assign(this.state, { folded: rows.folded, onlyPath: rows.onlyPath, find: rows.find, from: axis.from, to: axis.to });
  }

  label() {
    const flame = this.mode === "flame";
    for (const name of ["collapse", "path", "out", "in"]) this.buttons[name].hidden = flame;
    this.buttons.measure.hidden = !flame;
    this.buttons.collapse.textContent = this.rows.folded.size ? "Unfold" : "Fold";
    this.buttons.path.setAttribute("aria-pressed", String(this.rows.onlyPath));
    this.buttons.measure.textContent = this.flame?.measure === "own" ? "Critical path" : "All own time";
    this.found.textContent = this.rows.matches ? `${grouped(this.rows.found)} found` : "";
  }

  // ---- what is drawn

  get drawing() {
    if (this.mode !== "flame") return this.spans;
    this.flame ??= new Flame(this.trace, this.look, this.axis, this.rows);
    return this.flame;
  }

  get top() { return this.axis.top; }

  resize() {
    const full = this.top + this.drawing.height + 6;
    const height = Math.min(HEIGHT, full);
    const width = this.scroll.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    this.scroll.style.height = `${height + 2}px`; // its border
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, full - height)}px`;
    if (this.canvas.width !== width * ratio || this.canvas.height !== height * ratio) {
      this.canvas.width = width * ratio;
      this.canvas.height = height * ratio;
    }
    this.look.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.height = height;
    this.axis.place(width, Math.round(Math.min(400, Math.max(width * 0.3, Math.min(200, width * 0.45)))));
    this.canvas.dataset.top = this.top;
    this.redraw();
  }

  redraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    const { look, axis, drawing } = this;
    const { pen } = look;
    look.read();
    pen.clearRect(0, 0, axis.width, this.height);
    pen.save();
    pen.beginPath();
    pen.rect(0, this.top, axis.width, this.height - this.top);
    pen.clip();
    drawing.draw(this.scroll.scrollTop, this.height, this.state.selected, this.hover);
    pen.restore();
    axis.draw(drawing.title(), this.height);
    if (this.drag?.moved) this.drawDrag();
    this.keep();
  }

  drawDrag() {
    const { from, to } = this.drag;
    const { pen, accent } = this.look;
    pen.globalAlpha = 0.18;
    pen.fillStyle = accent;
    pen.fillRect(Math.min(from, to), AXIS, Math.abs(to - from), this.height - AXIS);
    pen.globalAlpha = 1;
    this.look.text(duration(Math.abs(this.axis.t(to) - this.axis.t(from))), Math.min(from, to) + 4, this.top + 12, { size: 12 });
  }

  // ---- the reader's hand

  listen() {
    const on = (target, event, run, options = {}) => target.addEventListener(event, run.bind(this), { signal: this.abort.signal, ...options });
    on(this.scroll, "scroll", () => { this.state.top[this.mode] = this.scroll.scrollTop; this.redraw(); });
    on(this.canvas, "pointerdown", this.press);
    on(this.canvas, "pointermove", this.move);
    on(this.canvas, "pointerup", this.release);
    on(this.canvas, "pointerleave", () => { this.hover = -1; this.tip.hidden = true; this.redraw(); });
    on(this.canvas, "dblclick", this.fit);
    on(this.scroll, "wheel", this.wheel, { passive: false });
    on(this.scroll, "keydown", this.key);
    on(this.find, "input", () => { this.rows.search(this.find.value); this.label(); this.redraw(); });
    on(this.find, "keydown", (event) => { if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1); });
    for (const [name, button] of Object.entries(this.buttons)) on(button, "click", () => this.act(name));
    this.watcher = new ResizeObserver(() => { if (this.trace) this.resize(); });
    this.watcher.observe(this.scroll);
    on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => this.redraw());
  }

  act(name) {
    if (name === "in") this.zoom(0.5);
    if (name === "out") this.zoom(2);
    if (name === "fit") this.fit();
    if (name === "collapse") this.rows.foldAll();
    if (name === "path") { this.rows.onlyPath = !this.rows.onlyPath; this.rows.lay(); }
    if (name === "measure") this.drawing.measureBy(this.drawing.measure === "own" ? "critical" : "own");
    this.label();
    this.resize();
  }

  fit() {
    this.axis.show(this.axis.earliest, this.axis.latest);
    if (this.flame) this.flame.focus = 0;
    this.redraw();
  }

  zoomTo(from, to) {
    this.axis.show(from, to);
    this.redraw();
  }

  zoom(factor, centre = (this.axis.from + this.axis.to) / 2) {
    this.zoomTo(centre - (centre - this.axis.from) * factor, centre + (this.axis.to - centre) * factor);
  }

  nextMatch(step) {
    const span = this.rows.match(Math.max(this.state.selected, step > 0 ? -1 : 0), step);
    this.select(span, true);
  }

  press(event) {
    if (this.mode === "flame" || event.offsetX <= this.axis.left) return;
    this.drag = { from: event.offsetX, to: event.offsetX, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.drag) {
      this.drag.to = Math.max(this.axis.left, event.offsetX);
      this.drag.moved ||= Math.abs(this.drag.to - this.drag.from) > 5;
      this.tip.hidden = true;
    } else {
      this.hover = this.under(event);
      this.showTip(event);
    }
    this.redraw();
  }

  release(event) {
    const { drag } = this;
    this.drag = null;
    if (drag?.moved) {
      const [from, to] = [this.axis.t(drag.from), this.axis.t(drag.to)].sort((a, b) => a - b);
      this.zoomTo(from, to);
      return;
    }
    const found = this.under(event);
    if (found < 0) return;
    if (this.mode === "flame") this.enter(found);
    else if (this.spans.isTriangle(found, event.offsetX)) this.toggle(found);
    else this.select(found, true);
  }

  under(event) {
    if (this.mode === "flame") return this.drawing.at(event.offsetX, event.offsetY);
    return this.spans.at(event.offsetY, this.scroll.scrollTop);
  }

  // Makes a box of the flame as wide as the view, and its first span the chosen one.
  enter(node) {
    this.flame.focus = node;
    const [span] = this.flame.nodes[node].spans;
    if (span !== undefined && span !== this.state.selected) {
      this.state.selected = span;
      this.choose(this.trace.id(span));
    }
    this.say(this.flame.describe(node));
    this.redraw();
  }

  toggle(span) {
    this.rows.toggle(span);
    this.label();
    this.resize();
  }

  wheel(event) {
    if (this.mode === "flame") return;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.axis.t(Math.max(event.offsetX, this.axis.left)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = ((event.deltaX || event.deltaY) / this.axis.width) * (this.axis.to - this.axis.from);
      this.zoomTo(this.axis.from + by, this.axis.to + by);
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const run = (this.mode === "flame" ? this.flameKeys(event.key) : this.spanKeys(event.key)) ?? this.commonKeys(event.key);
    if (!run) return;
    event.preventDefault();
    run();
  }

  commonKeys(key) {
    return { "/": () => this.find.focus(), n: () => this.nextMatch(1), N: () => this.nextMatch(-1), 0: () => this.fit(), Escape: () => this.fit() }[key];
  }

  spanKeys(key) {
    const { selected } = this.state;
    const row = selected < 0 ? -1 : this.rows.rowOf[selected];
    const go = (to) => this.select(this.rows.rows[Math.min(Math.max(to, 0), this.rows.length - 1)], false);
    const page = Math.max(1, Math.floor((this.height - this.top) / ROW) - 1);
    return {
      ArrowDown: () => go(row + 1),
      ArrowUp: () => go(row - 1),
      PageDown: () => go(row + page),
      PageUp: () => go(row - page),
      Home: () => go(0),
      End: () => go(this.rows.length - 1),
      ArrowLeft: () => (this.trace.hasChildren(selected) && !this.rows.folded.has(selected) ? this.toggle(selected) : this.select(this.trace.parents[selected] ?? -1, false)),
      ArrowRight: () => (this.rows.folded.has(selected) ? this.toggle(selected) : go(row + 1)),
      Enter: () => this.select(selected, true),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
    }[key];
  }

  flameKeys(key) {
    const { flame } = this;
    if (!key.startsWith("Arrow")) return undefined;
    return () => this.enter(flame.neighbour(flame.focus, key));
  }

  // ---- the chosen span

  select(span, tell) {
    if (span === undefined || span < 0) return;
    this.state.selected = span;
    this.reveal(span);
    this.say(this.spans.describe(span));
    this.redraw();
    if (tell) this.choose(this.trace.id(span));
  }

  reveal(span) {
    if (this.rows.uncover(span)) {
      this.label();
      this.resize();
    }
    if (this.mode === "flame") return;
    const start = this.trace.starts[span] + this.axis.shift(span);
    this.axis.include(start, start + this.trace.durations[span]);
    const y = this.rows.rowOf[span] * ROW;
    const top = this.scroll.scrollTop;
    const room = this.height - this.top - 2 * ROW;
    if (y < top) this.scroll.scrollTop = y;
    else if (y > top + room) this.scroll.scrollTop = y - room;
  }

  say(lines) { this.spoken.textContent = lines.join(", "); }

  showTip(event) {
    const { tip } = this;
    if (this.hover < 0) { tip.hidden = true; return; }
    const [title, ...lines] = this.drawing.describe(this.hover);
    const bold = document.createElement("b");
    bold.textContent = title;
    tip.replaceChildren(bold, ...lines.map((line) => { const div = document.createElement("div"); div.textContent = line; return div; }));
    tip.hidden = false;
    const x = event.offsetX + 16;
    tip.style.left = `${x + tip.offsetWidth > this.axis.width ? Math.max(0, event.offsetX - tip.offsetWidth - 12) : x}px`;
    const y = this.scroll.offsetTop + event.offsetY + 14;
    tip.style.top = `${event.offsetY + tip.offsetHeight + 20 > this.height ? y - tip.offsetHeight - 24 : y}px`;
  }
}
