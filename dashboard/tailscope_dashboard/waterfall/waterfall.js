// The waterfall of one trace on a canvas. Only the rows in view are drawn, so ten thousand spans scroll like ten.
// Text of spans goes to canvas text and to textContent, never to HTML.

const ROW = 24;
const AXIS = 28;
const HEIGHT = 520;
const remembered = new Map(); // what the reader folded and zoomed, by trace: a redraw of the page must not undo it

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const view = new Waterfall(parentElement, data, (id) => setTriggerValue("span", id));
  return () => view.close();
}

class Waterfall {
  constructor(root, data, choose) {
    this.root = root;
    this.data = data;
    this.choose = choose;
    this.abort = new AbortController();
    const known = remembered.get(data.trace_id);
    this.state = known ?? { folded: new Set(), from: data.earliest_us, to: data.duration_us, top: 0, find: "" };
    remembered.set(data.trace_id, this.state);
    this.selected = data.ids.indexOf(data.selected ?? "");
    this.hover = -1;
    this.drag = null;
    for (const name of ["find", "found", "scroll", "spacer", "legend", "tip", "spoken"]) {
      this[name] = root.querySelector("." + name);
    }
    this.canvas = root.querySelector("canvas");
    this.pen = this.canvas.getContext("2d");
    this.paths = segmentsBySpan(data.critical, data.ids.length);
    this.find.value = this.state.find;
    this.lay();
    this.drawLegend();
    this.listen();
    this.resize();
    this.scroll.scrollTop = this.state.top;
    if (!known && this.selected >= 0) this.reveal(this.selected);
  }

  close() {
    this.abort.abort();
    this.watcher.disconnect();
  }

  listen() {
    const on = (target, event, run, options = {}) =>
      target.addEventListener(event, run.bind(this), { signal: this.abort.signal, ...options });
    on(this.scroll, "scroll", () => { this.state.top = this.scroll.scrollTop; this.draw(); });
    on(this.canvas, "pointerdown", this.press);
    on(this.canvas, "pointermove", this.move);
    on(this.canvas, "pointerup", this.release);
    on(this.canvas, "pointerleave", () => { this.hover = -1; this.tip.hidden = true; this.draw(); });
    on(this.canvas, "dblclick", () => this.zoomTo(this.data.earliest_us, this.data.duration_us));
    on(this.scroll, "wheel", this.wheel, { passive: false });
    on(this.scroll, "keydown", this.key);
    on(this.find, "input", () => { this.state.find = this.find.value; this.search(); this.draw(); });
    on(this.find, "keydown", (event) => { if (event.key === "Enter") this.nextMatch(); });
    for (const button of this.root.querySelectorAll("[data-do]")) on(button, "click", () => this.act(button.dataset.do));
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(this.scroll);
    // A switch between light and dark redraws nothing by itself: the colours are read when drawing.
    on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => requestAnimationFrame(() => this.draw()));
  }

  lay() {
    const { depths } = this.data;
    this.rows = [];
    for (let i = 0; i < depths.length; i++) {
      this.rows.push(i);
      if (!this.state.folded.has(i)) continue;
      const depth = depths[i];
      while (i + 1 < depths.length && depths[i + 1] > depth) i++;
    }
    this.rowOf = new Map(this.rows.map((span, row) => [span, row]));
    this.search();
  }

  resize() {
    const full = AXIS + this.rows.length * ROW + 6;
    const height = Math.min(HEIGHT, full);
    this.scroll.style.height = height + "px";
    const width = this.scroll.clientWidth;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = height + "px";
    this.spacer.style.height = Math.max(0, full - height) + "px";
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = width;
    this.height = height;
    this.left = Math.round(Math.min(400, Math.max(200, width * 0.3)));
    this.draw();
  }

  // ---- drawing

  draw() {
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.ink = colour("--st-text-color") || "#222";
    this.paper = colour("--st-background-color") || "#fff";
    this.shade = colour("--st-secondary-background-color") || "#eee";
    this.line = colour("--st-border-color") || "#ccc";
    this.red = colour("--st-red-color") || "#d33";
    this.accent = colour("--st-primary-color") || "#36c";
    this.font = style.fontFamily;
    const pen = this.pen;
    pen.clearRect(0, 0, this.width, this.height);
    const first = Math.floor(this.scroll.scrollTop / ROW);
    const last = Math.min(this.rows.length - 1, first + Math.ceil(this.height / ROW));
    const shift = AXIS - (this.scroll.scrollTop - first * ROW);
    pen.save();
    pen.beginPath();
    pen.rect(0, AXIS, this.width, this.height - AXIS);
    pen.clip();
    this.drawGrid();
    for (let row = first; row <= last; row++) this.drawRow(this.rows[row], shift + (row - first) * ROW);
    pen.restore();
    this.drawAxis();
    if (this.drag?.moved) this.drawDrag();
  }

  drawRow(span, y) {
    const { data, pen } = this;
    const middle = y + ROW / 2;
    if (span === this.selected || span === this.hover) {
      pen.fillStyle = this.shade;
      pen.fillRect(0, y, this.width, ROW);
    }
    if (span === this.selected) {
      pen.fillStyle = this.accent;
      pen.fillRect(0, y, 3, ROW);
    }
    pen.globalAlpha = this.matches && !this.matches.has(span) ? 0.3 : 1;
    this.drawLabel(span, middle);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, y, this.width - this.left, ROW);
    pen.clip();
    const x0 = this.x(data.starts[span]);
    const x1 = Math.max(this.x(data.starts[span] + data.durations[span]), x0 + 1.5);
    const alpha = pen.globalAlpha;
    pen.fillStyle = data.colours[data.stages[span]];
    pen.globalAlpha = alpha * 0.45;
    this.box(x0, middle - 7, x1 - x0, 12);
    pen.fill();
    pen.globalAlpha = alpha;
    for (const [from, to] of this.paths[span]) {
      const a = this.x(from);
      const b = Math.max(this.x(to), a + 1.5);
      pen.fillStyle = data.colours[data.stages[span]];
      this.box(a, middle - 7, b - a, 12);
      pen.fill();
      pen.fillStyle = this.ink;
      pen.fillRect(a, middle + 6, b - a, 2.5);
    }
    if (data.errors[span]) {
      pen.strokeStyle = this.red;
      pen.lineWidth = 2;
      this.box(x0 - 1, middle - 8, Math.max(x1 - x0 + 2, 5), 14);
      pen.stroke();
    }
    this.drawDuration(span, x0, x1, middle);
    pen.restore();
    pen.globalAlpha = 1;
  }

  drawLabel(span, middle) {
    const { data, pen } = this;
    const indent = 10 + Math.min(data.depths[span], 14) * 14;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    if (this.hasChildren(span)) {
      pen.fillStyle = this.ink;
      pen.font = `10px ${this.font}`;
      pen.fillText(this.state.folded.has(span) ? "▶" : "▼", indent, middle);
    }
    const start = indent + 15;
    pen.fillStyle = data.colours[data.stages[span]];
    this.box(start, middle - 5, 4, 10);
    pen.fill();
    pen.font = `13px ${this.font}`;
    pen.fillStyle = data.errors[span] ? this.red : this.ink;
    const room = this.left - start - 18;
    const service = data.services[data.service_of[span]];
    const operation = (data.errors[span] ? "! " : "") + data.operations[span];
    const shown = fit(pen, operation, room);
    pen.fillText(shown, start + 10, middle);
    const used = pen.measureText(shown).width;
    if (room - used > 50) {
      pen.globalAlpha *= 0.6;
      pen.font = `12px ${this.font}`;
      pen.fillText(fit(pen, service, room - used - 8), start + 18 + used, middle);
      pen.globalAlpha = this.matches && !this.matches.has(span) ? 0.3 : 1;
    }
  }

  drawDuration(span, x0, x1, middle) {
    const pen = this.pen;
    const text = duration(this.data.durations[span]);
    pen.font = `12px ${this.font}`;
    pen.textBaseline = "middle";
    const width = pen.measureText(text).width;
    const edge = Math.min(x1, this.width);
    pen.fillStyle = this.ink;
    if (edge + width + 8 < this.width) {
      pen.textAlign = "left";
      pen.fillText(text, Math.max(edge, this.left) + 6, middle);
    } else if (x0 - width - 8 > this.left) {
      pen.textAlign = "right";
      pen.fillText(text, x0 - 6, middle);
    } else if (x1 - Math.max(x0, this.left) > width + 16) {
      const covered = this.paths[span].some(([from, to]) => this.x(from) < edge - width - 12 && this.x(to) >= edge - 2);
      pen.textAlign = "right";
      pen.fillStyle = covered ? "#fff" : this.ink;
      pen.fillText(text, edge - 8, middle);
    }
  }

  drawGrid() {
    const pen = this.pen;
    pen.strokeStyle = this.line;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const tick of this.ticks()) {
      const x = Math.round(this.x(tick)) + 0.5;
      pen.moveTo(x, AXIS);
      pen.lineTo(x, this.height);
    }
    pen.stroke();
  }

  drawAxis() {
    const pen = this.pen;
    pen.fillStyle = this.shade;
    pen.fillRect(0, 0, this.width, AXIS);
    pen.fillStyle = this.ink;
    pen.font = `12px ${this.font}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const whole = this.data.ids.length;
    const shown = this.rows.length === whole ? "" : `, ${this.rows.length} shown`;
    pen.fillText(`${whole.toLocaleString("en")} spans${shown}`, 12, AXIS / 2);
    for (const tick of this.ticks()) {
      const x = this.x(tick);
      const text = duration(tick);
      const width = pen.measureText(text).width;
      if (x + width + 6 < this.width) pen.fillText(text, x + 4, AXIS / 2);
    }
    pen.fillStyle = this.line;
    pen.fillRect(0, AXIS - 1, this.width, 1);
    pen.fillRect(this.left - 1, 0, 1, this.height);
  }

  drawDrag() {
    const { from, to } = this.drag;
    const pen = this.pen;
    pen.globalAlpha = 0.18;
    pen.fillStyle = this.accent;
    pen.fillRect(Math.min(from, to), AXIS, Math.abs(to - from), this.height - AXIS);
    pen.globalAlpha = 1;
    pen.fillStyle = this.ink;
    pen.textAlign = "left";
    pen.fillText(duration(Math.abs(this.t(to) - this.t(from))), Math.min(from, to) + 4, AXIS + 12);
  }

  drawLegend() {
    const used = new Set(this.data.stages);
    const entries = this.data.stage_names
      .map((name, i) => [name, this.data.colours[i], i])
      .filter(([, , i]) => used.has(i))
      .map(([name, colour]) => entry(name, (mark) => { mark.style.background = colour; }));
    entries.push(entry("underlined: on the critical path", (mark) => mark.classList.add("path")));
    if (this.data.errors.some(Boolean)) entries.push(entry("! error", (mark) => mark.classList.add("error")));
    this.legend.replaceChildren(...entries);
  }

  box(x, y, width, height) {
    this.pen.beginPath();
    this.pen.roundRect(x, y, width, height, Math.min(3, width / 2));
  }

  // ---- time and rows

  x(us) {
    return this.left + 8 + ((us - this.state.from) / (this.state.to - this.state.from)) * (this.width - this.left - 24);
  }

  t(x) {
    return this.state.from + ((x - this.left - 8) / (this.width - this.left - 24)) * (this.state.to - this.state.from);
  }

  ticks() {
    const span = this.state.to - this.state.from;
    const step = roundUp(span / Math.max(2, Math.floor((this.width - this.left) / 110)));
    const ticks = [];
    for (let at = Math.ceil(this.state.from / step) * step; at <= this.state.to; at += step) ticks.push(at);
    return ticks;
  }

  spanAt(event) {
    const y = event.offsetY;
    if (y < AXIS) return -1;
    const row = Math.floor((this.scroll.scrollTop + y - AXIS) / ROW);
    return this.rows[row] ?? -1;
  }

  hasChildren(span) {
    return (this.data.depths[span + 1] ?? 0) > this.data.depths[span];
  }

  zoomTo(from, to) {
    const whole = this.data.duration_us;
    const least = Math.max(whole / 1e6, 0.01);
    const width = Math.min(Math.max(to - from, least), whole * 1.02);
    this.state.from = Math.min(Math.max(from, this.data.earliest_us), Math.max(whole - width, this.data.earliest_us));
    this.state.to = this.state.from + width;
    this.draw();
  }

  zoom(factor, centre = (this.state.from + this.state.to) / 2) {
    this.zoomTo(centre - (centre - this.state.from) * factor, centre + (this.state.to - centre) * factor);
  }

  toggle(span) {
    if (!this.hasChildren(span)) return;
    if (!this.state.folded.delete(span)) this.state.folded.add(span);
    this.lay();
    this.resize();
  }

  act(what) {
    if (what === "in") this.zoom(0.5);
    if (what === "out") this.zoom(2);
    if (what === "fit") this.zoomTo(this.data.earliest_us, this.data.duration_us);
    if (what === "collapse") {
      if (this.state.folded.size > 0) this.state.folded.clear();
      else this.data.depths.forEach((depth, i) => { if (depth >= 1 && this.hasChildren(i)) this.state.folded.add(i); });
      this.lay();
      this.resize();
    }
  }

  // ---- search

  search() {
    const wanted = this.state.find.trim().toLowerCase();
    const { data } = this;
    this.matches = null;
    if (wanted) {
      this.matches = new Set();
      for (let i = 0; i < data.ids.length; i++) {
        const text = `${data.operations[i]} ${data.services[data.service_of[i]]} ${data.stage_names[data.stages[i]]} ${data.ids[i]}`;
        if (text.toLowerCase().includes(wanted)) this.matches.add(i);
      }
    }
    this.found.textContent = this.matches ? `${this.matches.size.toLocaleString("en")} found` : "";
  }

  nextMatch() {
    if (!this.matches?.size) return;
    const all = [...this.matches];
    this.select(all.find((span) => span > this.selected) ?? all[0], true);
  }

  // ---- the reader's hand

  press(event) {
    if (event.offsetX > this.left) {
      this.drag = { from: event.offsetX, to: event.offsetX, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    }
  }

  move(event) {
    if (this.drag) {
      this.drag.to = Math.max(this.left, event.offsetX);
      this.drag.moved ||= Math.abs(this.drag.to - this.drag.from) > 5;
    } else {
      this.hover = this.spanAt(event);
      this.showTip(event);
    }
    this.draw();
  }

  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (drag?.moved) {
      const [a, b] = [this.t(drag.from), this.t(drag.to)].sort((p, q) => p - q);
      this.zoomTo(a, b);
      return;
    }
    const span = this.spanAt(event);
    if (span < 0) return;
    const arrow = 10 + Math.min(this.data.depths[span], 14) * 14;
    if (event.offsetX < this.left && event.offsetX < arrow + 14 && event.offsetX > arrow - 6) this.toggle(span);
    else this.select(span, true);
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.t(Math.max(event.offsetX, this.left)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const by = ((event.deltaX || event.deltaY) / this.width) * (this.state.to - this.state.from);
      this.zoomTo(this.state.from + by, this.state.to + by);
    }
  }

  key(event) {
    const row = this.rowOf.get(this.selected) ?? -1;
    const go = (to) => this.select(this.rows[Math.min(Math.max(to, 0), this.rows.length - 1)], false);
    const keys = {
      ArrowDown: () => go(row + 1),
      ArrowUp: () => go(row - 1),
      PageDown: () => go(row + 15),
      PageUp: () => go(row - 15),
      Home: () => go(0),
      End: () => go(this.rows.length - 1),
      ArrowLeft: () => { if (this.hasChildren(this.selected) && !this.state.folded.has(this.selected)) this.toggle(this.selected); else this.select(this.data.parents[this.selected] ?? -1, false); },
      ArrowRight: () => { if (this.state.folded.has(this.selected)) this.toggle(this.selected); else go(row + 1); },
      Enter: () => this.select(this.selected, true),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      "0": () => this.zoomTo(this.data.earliest_us, this.data.duration_us),
      Escape: () => this.zoomTo(this.data.earliest_us, this.data.duration_us),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  select(span, tell) {
    if (span == null || span < 0) return;
    this.selected = span;
    this.reveal(span);
    this.spoken.textContent = this.describe(span).join(", ");
    this.draw();
    if (tell) this.choose(this.data.ids[span]);
  }

  reveal(span) {
    let parent = this.data.parents[span];
    let unfolded = false;
    while (parent >= 0) {
      unfolded = this.state.folded.delete(parent) || unfolded;
      parent = this.data.parents[parent];
    }
    if (unfolded) { this.lay(); this.resize(); }
    const y = this.rowOf.get(span) * ROW;
    const top = this.scroll.scrollTop;
    if (y < top) this.scroll.scrollTop = y;
    else if (y > top + this.height - AXIS - 2 * ROW) this.scroll.scrollTop = y - this.height + AXIS + 2 * ROW;
  }

  describe(span) {
    const { data } = this;
    const critical = this.paths[span].reduce((sum, [from, to]) => sum + to - from, 0);
    return [
      data.operations[span],
      `${data.services[data.service_of[span]]} · ${data.stage_names[data.stages[span]]}`,
      `${duration(data.durations[span])}, from ${duration(data.starts[span])}`,
      critical > 0 ? `${duration(critical)} on the critical path` : "not on the critical path",
      ...(data.errors[span] ? ["error"] : []),
    ];
  }

  showTip(event) {
    const tip = this.tip;
    if (this.hover < 0) { tip.hidden = true; return; }
    const [title, ...lines] = this.describe(this.hover);
    const bold = document.createElement("b");
    bold.textContent = title;
    tip.replaceChildren(bold, ...lines.map((line) => { const div = document.createElement("div"); div.textContent = line; return div; }));
    tip.hidden = false;
    const frame = this.scroll.offsetTop;
    const x = event.offsetX + 16;
    tip.style.left = (x + tip.offsetWidth > this.width ? Math.max(0, event.offsetX - tip.offsetWidth - 12) : x) + "px";
    const y = frame + event.offsetY + 14;
    tip.style.top = (event.offsetY + tip.offsetHeight + 20 > this.height ? y - tip.offsetHeight - 24 : y) + "px";
  }
}

function entry(text, mark) {
  const item = document.createElement("span");
  const sign = document.createElement("i");
  mark(sign);
  item.append(sign, document.createTextNode(text));
  return item;
}

function segmentsBySpan(critical, spans) {
  const paths = Array.from({ length: spans }, () => []);
  for (const [span, from, to] of critical) paths[span]?.push([from, to]);
  return paths;
}

function fit(pen, text, room) {
  if (room <= 8) return "";
  if (pen.measureText(text).width <= room) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].find((m) => m * power >= value) * power;
}

function duration(us) {
  const size = Math.abs(us);
  const [divisor, unit] = size >= 1e6 ? [1e6, "s"] : size >= 1e3 ? [1e3, "ms"] : [1, "µs"];
  const value = us / divisor;
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return us === 0 ? "0" : `${Number(value.toFixed(digits))} ${unit}`;
}
