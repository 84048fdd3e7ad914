// How things look: colours of the theme, hatchings of the kinds of time, texts that fit, times in words.

const STRIPES = { queue: "diagonal", gap: "dots", gc: "cross", gpu: "plain", host_wait: "lines", dependency: "plain" };
const KIND_WORDS = {
  queue: "waiting in a queue",
  gap: "between two services",
  gc: "stopped by the garbage collector",
  host_wait: "host, beside the GPU",
  gpu: "the GPU works",
  dependency: "a call nobody reports on",
  untraced: "not explained by any span",
};
const MARKS = { gc: "diamond", jit_compile: "square", preempted: "bar", retry: "triangle", exception: "cross" };
const MARK_WORDS = {
  gc: "garbage collection",
  jit_compile: "compilation",
  preempted: "preempted",
  retry: "retry",
  exception: "exception",
};
const COST_WORDS = {
  "cpu.throttled_ms": "throttled",
  "cpu.run_queue_ms": "waited for a CPU",
  "cpu.steal_ms": "CPU stolen",
  "eventloop.lag_ms": "event loop late",
};

const STOPPED = "#6d7480"; // what lies under the white hatching of a pause, in both themes

class Look {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.hatchings = new Map();
    this.fitted = new Map();
  }

  // The theme may change without a word to us, so its colours are read before each drawing.
  read() {
    const style = getComputedStyle(this.canvas);
    const colour = (name, other) => style.getPropertyValue(name).trim() || other;
    this.ink = colour("--st-text-color", "#222");
    this.paper = colour("--st-background-color", "#fff");
    this.shade = colour("--st-secondary-background-color", "#eee");
    this.line = colour("--st-border-color", "#ccc");
    this.red = colour("--st-red-color", "#d33");
    this.green = colour("--st-green-color", "#0a8459");
    this.accent = colour("--st-primary-color", "#36c");
    this.font = style.fontFamily;
  }

  text(words, x, y, { size = 13, align = "left", colour = this.ink, bold = false } = {}) {
    const { pen } = this;
    pen.font = `${bold ? "600 " : ""}${size}px ${this.font}`;
    pen.textBaseline = "middle";
    pen.textAlign = align;
    pen.fillStyle = colour;
    pen.fillText(words, x, y);
  }

  width(words, size) {
    this.pen.font = `${size}px ${this.font}`;
    return this.pen.measureText(words).width;
  }

  // The text, or as much of its beginning as there is room for, and how wide that is.
  fit(words, room, size) {
    const wide = Math.floor(room);
    const key = `${size}/${wide}/${words}`;
    const known = this.fitted.get(key);
    if (known) return known;
    if (this.fitted.size > 4000) this.fitted.clear();
    const made = this.cut(words, wide, size);
    this.fitted.set(key, made);
    return made;
  }

  cut(words, room, size) {
    if (room <= 8) return ["", 0];
    const whole = this.width(words, size);
    if (whole <= room) return [words, whole];
    let low = 0;
    let high = Math.min(words.length, 400);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.width(words.slice(0, middle) + "…", size) <= room) low = middle;
      else high = middle - 1;
    }
    const shown = words.slice(0, low) + "…";
    return [shown, this.width(shown, size)];
  }

  box(x, y, width, height, colour) {
    const { pen } = this;
    pen.fillStyle = colour;
    if (width < 4) {
      pen.fillRect(x, y, width, height);
      return;
    }
    pen.beginPath();
    pen.roundRect(x, y, width, height, 3);
    pen.fill();
  }

  // Lays the hatching of a kind of time over a box; nothing where the kind has none.
  hatch(kind, x, y, width, height) {
    const stripes = STRIPES[kind];
    if (!stripes || stripes === "plain" || width < 2) return;
    this.pen.fillStyle = this.hatching(stripes);
    this.pen.fillRect(x, y, width, height);
  }

  hatching(stripes) {
    const known = this.hatchings.get(stripes);
    if (known) return known;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = pen.fillStyle = "rgb(255 255 255 / 62%)";
    pen.lineWidth = 1.4;
    pen.beginPath();
    if (stripes === "diagonal") for (const at of [-6, 0, 6]) { pen.moveTo(at, 6); pen.lineTo(at + 6, 0); }
    if (stripes === "lines") { pen.moveTo(0, 3); pen.lineTo(6, 3); }
    if (stripes === "cross") { pen.moveTo(0, 0); pen.lineTo(6, 6); pen.moveTo(0, 6); pen.lineTo(6, 0); }
    pen.stroke();
    if (stripes === "dots") pen.fillRect(1.5, 1.5, 2.5, 2.5);
    const made = this.pen.createPattern(tile, "repeat");
    this.hatchings.set(stripes, made);
    return made;
  }

  // A mark for something that happened at a moment: each kind has a shape of its own.
  mark(what, x, y, pen = this.pen) {
    const size = 4.5;
    pen.fillStyle = this.ink;
    pen.strokeStyle = this.paper;
    pen.lineWidth = 1;
    pen.beginPath();
    const shape = MARKS[what] ?? "circle";
    if (shape === "diamond") { pen.moveTo(x, y - size); pen.lineTo(x + size, y); pen.lineTo(x, y + size); pen.lineTo(x - size, y); }
    if (shape === "square") pen.rect(x - size + 1, y - size + 1, 2 * size - 2, 2 * size - 2);
    if (shape === "bar") pen.rect(x - 1.5, y - size - 1, 3, 2 * size + 2);
    if (shape === "triangle") { pen.moveTo(x, y - size); pen.lineTo(x + size, y + size); pen.lineTo(x - size, y + size); }
    if (shape === "circle") pen.arc(x, y, size - 1.5, 0, 7);
    if (shape === "cross") {
      pen.strokeStyle = this.red;
      pen.lineWidth = 2.5;
      pen.moveTo(x - size + 1, y - size + 1); pen.lineTo(x + size - 1, y + size - 1);
      pen.moveTo(x - size + 1, y + size - 1); pen.lineTo(x + size - 1, y - size + 1);
      pen.stroke();
      return;
    }
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
}

// Dark or light text, whichever is easier to read on a colour (#rrggbb): by its relative luminance.
function inkOn(colour) {
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const [r, g, b] = channels.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#10151c" : "#ffffff";
}

// A round step that is not smaller, for the marks of an axis.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return [1, 2, 5, 10].find((factor) => factor * power >= value) * power;
}

// A length of time with three digits; a moment on an axis with as many as its steps need.
function duration(us, step = 0) {
  const size = Math.abs(us);
  const [divisor, unit] = size >= 1e6 ? [1e6, "s"] : size >= 1e3 ? [1e3, "ms"] : size >= 1 || us === 0 ? [1, "µs"] : [1e-3, "ns"];
  const value = us / divisor;
  const usual = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  const digits = step > 0 ? Math.max(0, Math.ceil(-Math.log10(step / divisor) - 1e-9)) : usual;
  return us === 0 ? "0" : `${Number(value.toFixed(Math.min(digits, 12)))} ${unit}`;
}

const grouped = (number) => number.toLocaleString("en");
