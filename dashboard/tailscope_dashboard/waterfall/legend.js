// The legend below the waterfall: what of colours, hatchings and marks is in this trace. Text goes to textContent.

function drawLegend(place, trace, look, mode) {
  const entries = stagesIn(trace, mode).map(([name, colour]) => entry(name, { background: colour }));
  if (mode === "spans") {
    entries.push(entry("underlined: on the critical path", {}, "path"));
    for (const kind of kindsIn(trace)) {
      if (STRIPES[kind] && STRIPES[kind] !== "plain") entries.push(hatched(kind, look));
    }
    if (trace.gpuSpan.length) entries.push(entry("line above: the GPU works (dashed: moment not recorded)", {}, "gpu"));
    for (const what of momentsIn(trace)) entries.push(marked(what, look));
    if (trace.flags.some((flag) => flag & 1)) entries.push(entry("! error", {}, "error"));
  }
  place.replaceChildren(...entries);
}

// Stages by name with their colour; parts such as inference.prefill have that of the whole.
function stagesIn(trace, mode) {
  const pieces = mode === "spans" ? new Set(trace.pieceStage) : [];
  const used = [...new Set([...new Set(trace.stage), ...pieces])].sort((a, b) => a - b);
  return [...new Map(used.map((stage) => [trace.stageNames[stage].split(".")[0], trace.colours[stage]]))];
}

function kindsIn(trace) { return [...new Set(trace.pieceKind)].map((kind) => trace.kinds[kind]); }

// Names of a shape of their own first, then the rest as one; never more than the legend can hold.
function momentsIn(trace) {
  const found = new Set();
  for (let k = 0; k < trace.markAt.length; k++) {
    if (trace.markAt[k] === trace.markAt[k]) found.add(trace.markNames[trace.markWhat[k]]);
  }
  const known = [...found].filter((what) => MARKS[what]);
  return found.size > known.length ? [...known, "another event"] : known;
}

function entry(words, style, sign = "") {
  const item = document.createElement("span");
  const box = document.createElement("i");
  Object.assign(box.style, style);
  if (sign) box.classList.add(sign);
  item.append(box, document.createTextNode(words));
  return item;
}

function hatched(kind, look) {
  return painted(KIND_WORDS[kind], 20, (pen) => {
    pen.fillStyle = STOPPED;
    pen.fillRect(0, 0, 20, 12);
    pen.fillStyle = look.hatching(STRIPES[kind]);
    pen.fillRect(0, 0, 20, 12);
  });
}

function marked(what, look) {
  return painted(MARK_WORDS[what] ?? what, 12, (pen) => look.mark(what, 6, 6, pen));
}

// An entry with a small picture of its own.
function painted(words, width, paint) {
  const item = document.createElement("span");
  const picture = document.createElement("canvas");
  picture.width = width;
  picture.height = 12;
  picture.className = "sign";
  item.append(picture, document.createTextNode(words));
  paint(picture.getContext("2d"));
  return item;
}
