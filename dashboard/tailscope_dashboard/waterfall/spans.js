// Draws spans as rows: name on the left, bar on the right. Only the rows in view are drawn.

const ROW = 24;
const INDENT = 14;
const DEEPEST = 14; // levels that are indented; deeper ones stand below each other

class SpanRows {
  constructor(trace, look, axis, rows) {
    Object.assign(this, { trace, look, axis, rows });
  }

  get height() { return this.rows.length * ROW; }

  title() {
    const whole = `${grouped(this.trace.count)} span${this.trace.count === 1 ? "" : "s"}`;
    return this.rows.length === this.trace.count ? whole : `${whole}, ${grouped(this.rows.length)} shown`;
  }

  draw(scroll, bottom, selected, hover) {
    const { axis } = this;
    axis.grid(axis.top, bottom);
    const first = Math.floor(scroll / ROW);
    const last = Math.min(this.rows.length - 1, first + Math.ceil((bottom - axis.top) / ROW));
    for (let row = first; row <= last; row++) {
      const span = this.rows.rows[row];
      this.drawRow(span, axis.top + row * ROW - scroll, span === selected, span === hover);
    }
  }

  drawRow(span, y, isSelected, isHovered) {
    const { look, axis } = this;
    const { pen } = look;
    if (isSelected || isHovered) {
      pen.fillStyle = look.shade;
      pen.fillRect(0, y, axis.width, ROW);
    }
    if (isSelected) {
      pen.fillStyle = look.accent;
      pen.fillRect(0, y, 3, ROW);
    }
    this.alpha = this.rows.isFaded(span) ? 0.3 : 1;
    pen.globalAlpha = this.alpha;
    this.drawLabel(span, y + ROW / 2);
    pen.save();
    pen.beginPath();
    pen.rect(axis.left, y, axis.width - axis.left, ROW);
    pen.clip();
    this.drawBar(span, y + ROW / 2);
    pen.restore();
    pen.globalAlpha = 1;
  }

  indent(span) { return 10 + Math.min(this.trace.depths[span], DEEPEST) * INDENT; }

  drawLabel(span, middle) {
    const { trace, look, axis } = this;
    const indent = this.indent(span);
    if (trace.hasChildren(span)) look.text(this.rows.folded.has(span) ? "▶" : "▼", indent, middle, { size: 10 });
    look.box(indent + 15, middle - 5, 4, 10, trace.colour(span));
    const room = axis.left - indent - 33;
    const failed = trace.failed(span);
    const [shown, used] = look.fit((failed ? "! " : "") + trace.name(span), room, 13);
    look.text(shown, indent + 25, middle, { colour: failed ? look.red : look.ink });
    if (room - used > 50) {
      look.pen.globalAlpha = this.alpha * 0.65;
      look.text(look.fit(trace.serviceName(span), room - used - 8, 12)[0], indent + 33 + used, middle, { size: 12 });
      look.pen.globalAlpha = this.alpha;
    }
  }

  drawBar(span, middle) {
    const { trace, look, axis } = this;
    const { pen } = look;
    const shift = axis.shift(span);
    const x0 = axis.x(trace.starts[span] + shift);
    const x1 = Math.max(axis.x(trace.starts[span] + trace.durations[span] + shift), x0 + 1.5);
    const seen = [Math.max(x0, axis.left - 4), Math.min(x1, axis.width + 4)];
    const elsewhere = trace.untimed(span) ? "its times cannot be true" : x1 < axis.left ? "◂" : x0 > axis.width ? "▸" : "";
    if (elsewhere) {
      const isRight = elsewhere === "▸";
      look.text(elsewhere, isRight ? axis.width - 6 : axis.left + 6, middle, { size: 12, align: isRight ? "right" : "left" });
      return;
    }
    pen.globalAlpha = this.alpha * 0.42;
    if (seen[1] > seen[0]) look.box(seen[0], middle - 7, seen[1] - seen[0], 12, trace.colour(span));
    pen.globalAlpha = this.alpha;
    this.drawPieces(span, shift, middle);
    this.drawGpu(span, shift, middle);
    if (trace.failed(span)) {
      pen.strokeStyle = look.red;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.roundRect(x0 - 1, middle - 8, Math.max(x1 - x0 + 2, 5), 14, 3);
      pen.stroke();
    }
    this.drawMarks(span, shift, middle);
    this.drawDuration(span, x0, x1, middle);
  }

  drawPieces(span, shift, middle) {
    const { trace, look, axis } = this;
    const { pieceFrom, pieceTo, pieceStage, pieceKind } = trace;
    const items = trace.piecesOf.of(span);
    axis.strip(firstPiece(items, pieceTo, axis.from - shift), items.length, (place) => items[place], pieceFrom, pieceTo, shift, (k, x, width) => {
      const wide = Math.max(width, 1.5);
      look.box(x, middle - 7, wide, 12, trace.colours[pieceStage[k]]);
      look.hatch(trace.kinds[pieceKind[k]], x, middle - 7, wide, 12);
      look.pen.fillStyle = look.ink;
      look.pen.fillRect(x, middle + 6, wide, 2.5);
    });
  }

  drawGpu(span, shift, middle) {
    const { trace, look, axis } = this;
    const { pen } = look;
    for (const k of trace.gpuOf.of(span)) {
      const x = Math.max(axis.x(trace.gpuFrom[k] + shift), axis.left - 4);
      const width = Math.min(axis.x(trace.gpuTo[k] + shift), axis.width + 4) - x;
      if (width <= 0) continue;
      pen.strokeStyle = look.green;
      pen.lineWidth = 3;
      pen.setLineDash(trace.gpuKnown[k] ? [] : [5, 3]);
      pen.beginPath();
      pen.moveTo(x, middle - 9);
      pen.lineTo(x + Math.max(width, 1.5), middle - 9);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  drawMarks(span, shift, middle) {
    const { trace, look, axis } = this;
    let last = -Infinity;
    for (const k of trace.marksOf.of(span)) {
      const x = axis.x(trace.markAt[k] + shift);
      if (!(x >= axis.left - 6 && x <= axis.width + 6) || x - last < 2) continue;
      last = x;
      const end = axis.x(trace.markAt[k] + trace.markLength[k] + shift);
      if (end - x > 2) {
        look.pen.fillStyle = STOPPED;
        look.pen.globalAlpha = this.alpha * 0.8;
        look.pen.fillRect(x, middle - 7, end - x, 12);
        look.pen.globalAlpha = this.alpha;
        look.hatch("gc", x, middle - 7, end - x, 12);
      }
      look.mark(trace.markNames[trace.markWhat[k]], x, middle - 1);
    }
  }

  // The length of the span, and beside it what the host cost it at moments that nobody recorded.
  drawDuration(span, x0, x1, middle) {
    const { trace, look, axis } = this;
    const words = [duration(trace.durations[span]), ...this.costs(span)].join(" · ");
    const width = look.width(words, 12);
    const edge = Math.min(x1, axis.width);
    if (edge + width + 8 < axis.width) look.text(words, Math.max(edge, axis.left) + 6, middle, { size: 12 });
    else if (x0 - width - 8 > axis.left) look.text(words, x0 - 6, middle, { size: 12, align: "right" });
    else if (x1 - Math.max(x0, axis.left) > width + 16) {
      look.box(edge - width - 13, middle - 7, width + 10, 12, look.paper);
      look.text(words, edge - 8, middle, { size: 12, align: "right" });
    }
  }

  costs(span) {
    const { trace } = this;
    const found = [];
    for (const k of trace.marksOf.of(span)) {
      if (trace.markAt[k] === trace.markAt[k]) continue;
      const what = trace.markNames[trace.markWhat[k]];
      found.push(`${COST_WORDS[what] ?? what} ${duration(trace.markLength[k])}`);
    }
    return found;
  }

  at(y, scroll) {
    const row = Math.floor((scroll + y - this.axis.top) / ROW);
    return y < this.axis.top ? -1 : this.rows.rows[row] ?? -1;
  }

  // Whether a place in a row is its triangle.
  isTriangle(span, x) { return x < this.axis.left && x > this.indent(span) - 6 && x < this.indent(span) + 14; }

  describe(span) {
    const { trace, axis } = this;
    const own = trace.critical[span];
    const gpu = trace.gpuOf.of(span).reduce((sum, k) => sum + trace.gpuTo[k] - trace.gpuFrom[k], 0);
    return [
      trace.name(span),
      `${trace.serviceName(span)} · ${trace.stageName(span)}`,
      `${duration(trace.durations[span])}, from ${duration(trace.starts[span] + axis.shift(span))}`,
      own > 0 ? `${duration(own)} on the critical path${this.kindsOf(span)}` : "not on the critical path",
      ...(gpu > 0 ? [`GPU ${duration(gpu)}`] : []),
      ...this.costs(span),
      ...this.happened(span),
      ...(trace.moved(span) ? [`moved by ${duration(trace.moved(span))}: its clock differs`] : []),
      ...(trace.orphaned(span) ? ["its parent never arrived"] : []),
      ...(trace.failed(span) ? ["error"] : []),
    ];
  }

  kindsOf(span) {
    const { trace } = this;
    const sums = new Map();
    for (const k of trace.piecesOf.of(span)) {
      const kind = trace.kinds[trace.pieceKind[k]];
      const stage = trace.pieceStage[k] === trace.stage[span] ? "" : trace.stageNames[trace.pieceStage[k]];
      const words = KIND_WORDS[kind] ?? stage;
      if (words) sums.set(words, (sums.get(words) ?? 0) + trace.pieceTo[k] - trace.pieceFrom[k]);
    }
    const told = [...sums].map(([words, us]) => `${duration(us)} ${words}`);
    return told.length ? ` (${told.join(", ")})` : "";
  }

  happened(span) {
    const { trace } = this;
    const said = [];
    for (const k of trace.marksOf.of(span)) {
      if (trace.markAt[k] !== trace.markAt[k]) continue;
      const what = trace.markNames[trace.markWhat[k]];
      const length = trace.markLength[k] > 0 ? ` for ${duration(trace.markLength[k])}` : "";
      said.push(`${MARK_WORDS[what] ?? what}${length}, at ${duration(trace.markAt[k] + this.axis.shift(span))}`);
    }
    return said.length > 5 ? [...said.slice(0, 4), `${said.length - 4} more events`] : said;
  }
}

// The first of a span's pieces that ends after a moment.
function firstPiece(items, to, moment) {
  let low = 0;
  let high = items.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (to[items[middle]] > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}
