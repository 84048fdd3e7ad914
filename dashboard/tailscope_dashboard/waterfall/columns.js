// Reads what Python packed (see _packed.py) and groups it by span. Owns the layout of the bytes; draws nothing.

const TYPES = { f8: Float64Array, i4: Int32Array, u1: Uint8Array };

function unpack(bytes) {
  const buffer = bytes.slice().buffer; // memory of its own: an array of eight bytes an item cannot begin anywhere
  const [head, body] = readJson(buffer, 0);
  const [directory, start] = readJson(buffer, body);
  const arrays = {};
  for (const [name, [type, offset, length]] of Object.entries(directory.columns)) {
    arrays[name] = new TYPES[type](buffer, start + offset, length);
  }
  return { head, trace: new Trace({ ...directory, ...arrays }) };
}

function readJson(buffer, at) {
  const length = new DataView(buffer).getUint32(at, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, at + 4, length));
  return [JSON.parse(text), at + 4 + length];
}

// One trace: spans in the order of the tree, and for each span its pieces of the critical path, what happened
// during it, and when the GPU worked for it.
class Trace {
  constructor(columns) {
    Object.assign(this, columns);
    this.count = this.depths.length;
    this.parents = parentsOf(this.depths);
    this.piecesOf = new Groups(this.pieceSpan, this.count);
    this.marksOf = new Groups(this.markSpan, this.count);
    this.gpuOf = new Groups(this.gpuSpan, this.count);
    this.critical = new Float64Array(this.count);
    for (let k = 0; k < this.pieceSpan.length; k++) {
      this.critical[this.pieceSpan[k]] += this.pieceTo[k] - this.pieceFrom[k];
    }
  }

  id(span) {
    let text = "";
    for (let k = span * 8; k < span * 8 + 8; k++) text += this.ids[k].toString(16).padStart(2, "0");
    return text;
  }

  find(id) {
    if (!/^[0-9a-f]{16}$/.test(id ?? "")) return -1;
    const wanted = id.match(/../g).map((pair) => parseInt(pair, 16));
    for (let span = 0; span < this.count; span++) {
      let k = 0;
      while (k < 8 && this.ids[span * 8 + k] === wanted[k]) k++;
      if (k === 8) return span;
    }
    return -1;
  }

  name(span) { return this.operations[this.operation[span]] ?? ""; }
  serviceName(span) { return this.services[this.service[span]] ?? ""; }
  stageName(span) { return this.stageNames[this.stage[span]]; }
  colour(span) { return this.colours[this.stage[span]]; }
  failed(span) { return (this.flags[span] & 1) !== 0; }
  orphaned(span) { return (this.flags[span] & 2) !== 0; }
  untimed(span) { return (this.flags[span] & 4) !== 0; }
  moved(span) { return this.movedBy.length ? this.movedBy[span] : 0; }
  hasChildren(span) { return (this.depths[span + 1] ?? 0) > this.depths[span]; }

  // The first span after all that lie below this one.
  end(span) {
    let next = span + 1;
    while (next < this.count && this.depths[next] > this.depths[span]) next++;
    return next;
  }
}

// Items by the span that they belong to, in the order in which they came.
class Groups {
  constructor(owner, spans) {
    this.offset = new Int32Array(spans + 1);
    for (const span of owner) this.offset[span + 1]++;
    for (let span = 0; span < spans; span++) this.offset[span + 1] += this.offset[span];
    const next = this.offset.slice();
    this.items = new Int32Array(owner.length);
    for (let k = 0; k < owner.length; k++) this.items[next[owner[k]]++] = k;
  }

  of(span) { return this.items.subarray(this.offset[span], this.offset[span + 1]); }
}

function parentsOf(depths) {
  const parents = new Int32Array(depths.length);
  const open = [];
  for (let span = 0; span < depths.length; span++) {
    const depth = depths[span];
    parents[span] = depth > 0 ? open[depth - 1] : -1;
    open[depth] = span;
  }
  return parents;
}
