// From moments to pixels and back, the time axis, and the lanes pinned below it: the critical path, the GPU, and
// what happened. They keep their place while the rows scroll.

const AXIS = 28;
const LANE = 18;

class Axis {
  constructor(trace, look) {
    this.trace = trace;
    this.look = look;
    this.lanes = ["path", ...(trace.gpuSpan.length ? ["gpu"] : []), ...(hasMoments(trace) ? ["marks"] : [])];
    this.isTime = true;
    this.earliest = trace.earliest_us;
    this.latest = trace.latest_us;
    this.recorded = false;
    this.show(this.earliest, this.latest);
  }

  // Where the rows begin. The boxes of a flame stand in no order of time, so it has neither ticks nor lanes.
  get top() { return this.isTime ? AXIS + this.lanes.length * LANE + 4 : AXIS; }

  place(width, left) {
    this.width = width;
    this.left = left;
  }

  show(from, to) {
    const whole = this.latest - this.earliest;
    const least = Math.max(whole / 1e7, 0.01);
    const length = Math.min(Math.max(to - from, least), whole * 1.02);
    this.from = Math.min(Math.max(from, this.earliest), Math.max(this.latest - length, this.earliest));
    this.to = this.from + length;
  }

  // Moves the view so that some of a stretch of time is in it, as little as need be.
  include(from, to) {
    const length = this.to - this.from;
    if (to < this.from || from > this.to) this.show((from + to - length) / 2, (from + to + length) / 2);
  }

  x(us) { return this.left + 8 + ((us - this.from) / (this.to - this.from)) * (this.width - this.left - 24); }

  t(x) { return this.from + ((x - this.left - 8) / (this.width - this.left - 24)) * (this.to - this.from); }

  // By how much a span's times are shifted on the screen: recorded times are those before the correction.
  shift(span) { return this.recorded ? -this.trace.moved(span) : 0; }

  get step() { return roundUp((this.to - this.from) / Math.max(2, Math.floor((this.width - this.left) / 110))); }

  ticks() {
    const { step } = this;
    const ticks = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) ticks.push(at);
    return ticks;
  }

  grid(top, bottom) {
    const { pen, line } = this.look;
    pen.strokeStyle = line;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const tick of this.ticks()) {
      const x = Math.round(this.x(tick)) + 0.5;
      pen.moveTo(x, top);
      pen.lineTo(x, bottom);
    }
    pen.stroke();
  }

  draw(title, bottom) {
    const { look } = this;
    const { pen } = look;
    pen.fillStyle = look.shade;
    pen.fillRect(0, 0, this.width, this.top);
    pen.fillStyle = look.line;
    pen.fillRect(0, this.top - 1, this.width, 1);
    look.text(look.fit(title, (this.isTime ? this.left : this.width) - 20, 12)[0], 12, AXIS / 2, { size: 12 });
    if (!this.isTime) return;
    const { step } = this;
    for (const tick of this.ticks()) {
      const x = this.x(tick);
      const words = duration(Math.round(tick / step) * step, step);
      if (x + look.width(words, 12) + 6 < this.width) look.text(words, x + 4, AXIS / 2, { size: 12 });
    }
    this.drawPlace();
    this.lanes.forEach((lane, number) => this.drawLane(lane, AXIS + number * LANE + LANE / 2));
    pen.fillStyle = look.line;
    pen.fillRect(this.left - 1, 0, 1, bottom);
  }

  // Which part of the whole trace is in view.
  drawPlace() {
    const whole = this.latest - this.earliest;
    if (this.to - this.from > whole * 0.999) return;
    const room = this.width - this.left - 24;
    const x = this.left + 8 + ((this.from - this.earliest) / whole) * room;
    this.look.box(x, 1, Math.max(((this.to - this.from) / whole) * room, 3), 3, this.look.accent);
  }

  drawLane(lane, y) {
    const { look } = this;
    const words = { path: "Critical path", gpu: "GPU", marks: "Events" }[lane];
    look.text(look.fit(words, this.left - 20, 12)[0], 12, y, { size: 12 });
    const { pen } = look;
    pen.save();
    pen.beginPath();
    pen.rect(this.left, y - LANE / 2, this.width - this.left, LANE);
    pen.clip();
    if (this.recorded && lane !== "marks") look.text("drawn on corrected times only", this.left + 8, y, { size: 12 });
    else if (lane === "path") this.drawPath(y);
    else if (lane === "gpu") this.drawGpu(y);
    else this.drawMarks(y);
    pen.restore();
  }

  drawPath(y) {
    const { trace, look } = this;
    const { pieceFrom, pieceTo, pieceStage, pieceKind } = trace;
    this.strip(firstAfter(pieceTo, this.from), pieceFrom.length, (k) => k, pieceFrom, pieceTo, 0, (k, x, width) => {
      const wide = width > 6 ? width - 1 : width; // two pieces of one stage are two
      look.pen.fillStyle = trace.colours[pieceStage[k]];
      look.pen.fillRect(x, y - 6, wide, 12);
      look.hatch(trace.kinds[pieceKind[k]], x, y - 6, wide, 12);
      if (wide > 44) this.nameStage(pieceStage[k], x, y, wide);
    });
  }

  nameStage(stage, x, y, wide) {
    const { look, trace } = this;
    const [words, used] = look.fit(trace.stageNames[stage], wide - 12, 11);
    if (used < 24) return;
    look.pen.fillStyle = trace.colours[stage]; // without hatching, so that it can be read
    look.pen.fillRect(x + 3, y - 6, used + 6, 12);
    look.text(words, x + 6, y + 0.5, { size: 11, colour: inkOn(trace.colours[stage]) });
  }

  drawGpu(y) {
    const { trace, look } = this;
    const { gpuFrom, gpuTo, gpuKnown } = trace;
    this.strip(0, gpuFrom.length, (k) => k, gpuFrom, gpuTo, 0, (k, x, width) => {
      look.pen.fillStyle = look.green;
      look.pen.globalAlpha = gpuKnown[k] ? 1 : 0.55;
      look.pen.fillRect(x, y - 5, width, 10);
      look.pen.globalAlpha = 1;
    });
  }

  drawMarks(y) {
    const { trace, look } = this;
    let last = -Infinity;
    for (let k = 0; k < trace.markAt.length; k++) {
      const x = this.x(trace.markAt[k] + this.shift(trace.markSpan[k]));
      if (!(x >= this.left - 6 && x <= this.width) || x - last < 3) continue;
      last = x;
      const length = (trace.markLength[k] / (this.to - this.from)) * (this.width - this.left - 24);
      if (length > 2) {
        look.pen.fillStyle = STOPPED;
        look.pen.fillRect(x, y - 5, length, 10);
        look.hatch("gc", x, y - 5, length, 10);
      }
      look.mark(trace.markNames[trace.markWhat[k]], x, y);
    }
  }

  // Draws pieces in order of time. Those narrower than a pixel are drawn once a pixel, so that a hundred thousand
  // cost a look at each and a stroke for each pixel.
  strip(first, last, item, from, to, shift, paint) {
    let drawn = -Infinity;
    for (let place = first; place < last; place++) {
      const k = item(place);
      const a = this.x(from[k] + shift);
      if (a > this.width) break;
      const b = this.x(to[k] + shift);
      if (b < this.left || b <= drawn) continue;
      const x = Math.max(a, this.left);
      const width = Math.max(Math.min(b, this.width + 4) - x, 1);
      paint(k, x, width);
      drawn = x + width;
    }
  }
}

function hasMoments(trace) {
  for (const at of trace.markAt) if (at === at) return true;
  return false;
}

// The first place in ascending numbers that is above a bound.
function firstAfter(ascending, bound) {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ascending[middle] > bound) high = middle;
    else low = middle + 1;
  }
  return low;
}
