// The flame view: spans with the same path of names are one box, as wide as the time of all of them.
// Widths are time on the critical path, which adds up to the request, or all own time, which shows what ran beside it.

const BOX = 22;
const NARROWEST = 0.4; // of a pixel: what is narrower is not drawn, and nothing below it is looked at

class Flame {
  constructor(trace, look, axis, rows) {
    Object.assign(this, { trace, look, axis, rows, measure: "critical" });
    [this.nodes, this.nodeOf] = pathsOf(trace);
    this.sum();
    this.focus = 0;
    this.levels = this.nodes.reduce((most, node) => Math.max(most, node.depth), 0) + 1;
  }

  // The number of a node's box is its place in `nodes`; 0 holds all trees.
  sum() {
    const own = this.measure === "critical" ? this.trace.critical : ownTimes(this.trace);
    for (const node of this.nodes) node.own = node.total = node.spans.reduce((sum, span) => sum + own[span], 0);
    for (let k = this.nodes.length - 1; k > 0; k--) this.nodes[this.nodes[k].parent].total += this.nodes[k].total;
  }

  measureBy(measure) {
    this.measure = measure;
    this.sum();
  }

  get height() { return this.levels * BOX; }

  title() {
    return this.measure === "critical" ? "Time on the critical path, by name" : "Own time of all spans, by name";
  }

  draw(scroll, bottom, selected, hover) {
    const { axis, look } = this;
    this.boxes = [];
    this.chosen = selected >= 0 ? this.nodeOf[selected] : -1;
    this.light();
    const line = [];
    for (let node = this.focus; node > 0; node = this.nodes[node].parent) line.unshift(node);
    line.unshift(0);
    const x0 = 8;
    const width = axis.width - 16;
    // What lies above the box that fills the view is drawn as wide as the view.
    for (const node of line) this.drawBox(node, x0, width, scroll, bottom, hover);
    this.drawBelow(this.focus, x0, width, scroll, bottom, hover);
    if (this.nodes[0].total === 0) look.text("None of these spans is on the critical path.", 16, axis.top + BOX / 2);
  }

  // A chain of calls may be deeper than calls of a script may nest, so boxes wait in a list.
  drawBelow(node, x, width, scroll, bottom, hover) {
    const waiting = [[node, x, width]];
    while (waiting.length) {
      const [above, from, room] = waiting.pop();
      const { total, children, depth } = this.nodes[above];
      if (this.axis.top + (depth + 1) * BOX - scroll > bottom) continue;
      let at = from;
      for (const child of total ? children : []) {
        const wide = (this.nodes[child].total / total) * room;
        if (wide >= NARROWEST) {
          this.drawBox(child, at, wide, scroll, bottom, hover);
          waiting.push([child, at, wide]);
        }
        at += wide;
      }
    }
  }

  drawBox(number, x, width, scroll, bottom, hover) {
    const node = this.nodes[number];
    const { look, trace, axis } = this;
    const y = axis.top + node.depth * BOX - scroll;
    if (y + BOX < axis.top || y > bottom) return;
    this.boxes.push([number, x, y, width]);
    const span = node.spans[0];
    const { pen } = look;
    pen.globalAlpha = span !== undefined && this.lit && !this.lit[number] ? 0.3 : 1;
    const wide = Math.max(width - 1, 0.5);
    look.box(x, y + 1, wide, BOX - 2, span === undefined ? look.line : trace.colour(span));
    if (number === hover || number === this.chosen) {
      pen.strokeStyle = look.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 2, Math.max(wide - 2, 1), BOX - 4);
    }
    if (width > 34) {
      const words = `${this.nameOf(node)}  ${duration(node.total)}`;
      const colour = span === undefined ? look.ink : inkOn(trace.colour(span));
      look.text(look.fit(words, width - 12, 12)[0], x + 6, y + BOX / 2, { size: 12, colour });
    }
    pen.globalAlpha = 1;
  }

  nameOf(node) {
    if (!node.spans.length) return "All";
    const many = node.spans.length > 1 ? ` ×${grouped(node.spans.length)}` : "";
    return this.trace.name(node.spans[0]) + many;
  }

  at(x, y) {
    const found = (this.boxes ?? []).find(([, left, top, width]) => x >= left && x < left + width && y >= top && y < top + BOX);
    return found && y >= this.axis.top ? found[0] : -1;
  }

  // Which boxes hold a span that was searched for; looked up once a search.
  light() {
    const { matches } = this.rows;
    if (this.litFor === matches) return;
    this.litFor = matches;
    this.lit = matches && new Uint8Array(this.nodes.length);
    if (matches) this.nodeOf.forEach((node, span) => { if (matches[span]) this.lit[node] = 1; });
  }

  // The neighbour of a box in a direction of the arrow keys; itself where there is none.
  neighbour(number, key) {
    const node = this.nodes[number];
    const among = this.nodes[node.parent]?.children ?? [];
    const place = among.indexOf(number);
    const step = { ArrowLeft: among[place - 1], ArrowRight: among[place + 1], ArrowUp: node.parent, ArrowDown: node.children[0] }[key];
    return step === undefined || step < 0 ? number : step;
  }

  describe(number) {
    const node = this.nodes[number];
    const { trace } = this;
    if (!node.spans.length) return ["All", duration(node.total)];
    const whole = this.nodes[0].total;
    const first = node.spans[0];
    const what = this.measure === "critical" ? "on the critical path" : "of own time";
    return [
      trace.name(first),
      `${trace.serviceName(first)} · ${trace.stageName(first)}`,
      `${grouped(node.spans.length)} ${node.spans.length === 1 ? "span" : "spans"}`,
      `${duration(node.total)} ${what}, ${whole ? ((100 * node.total) / whole).toFixed(1) : 0} %`,
      `${duration(node.own)} of it outside of its children`,
    ];
  }
}

// Spans by their path of services and names. A node comes after its parent.
function pathsOf(trace) {
  const nodes = [{ parent: -1, depth: 0, spans: [], children: [] }];
  const known = [new Map()];
  const nodeOf = new Int32Array(trace.count);
  for (let span = 0; span < trace.count; span++) {
    const parent = trace.parents[span] < 0 ? 0 : nodeOf[trace.parents[span]];
    const name = trace.operation[span] * trace.services.length + trace.service[span];
    let node = known[parent].get(name);
    if (node === undefined) {
      node = nodes.length;
      nodes.push({ parent, depth: nodes[parent].depth + 1, spans: [], children: [] });
      known.push(new Map());
      known[parent].set(name, node);
      nodes[parent].children.push(node);
    }
    nodes[node].spans.push(span);
    nodeOf[span] = node;
  }
  return [nodes, nodeOf];
}

// The time of each span that none of its children covers. Children come by start.
function ownTimes(trace) {
  const own = Float64Array.from(trace.durations);
  const reached = Float64Array.from(trace.starts);
  for (let span = 0; span < trace.count; span++) {
    const parent = trace.parents[span];
    if (parent < 0) continue;
    const from = Math.max(trace.starts[span], reached[parent]);
    const to = Math.min(trace.starts[span] + trace.durations[span], trace.starts[parent] + trace.durations[parent]);
    if (to > from) {
      own[parent] -= to - from;
      reached[parent] = to;
    }
  }
  return own;
}
