// Which spans stand in which row: folding, the filter for the critical path, search. Knows no pixels.

class Rows {
  constructor(trace) {
    this.trace = trace;
    this.folded = new Set();
    this.onlyPath = false;
    this.find = "";
    this.onPath = null;
    this.lay();
    this.search("");
  }

  lay() {
    const { trace } = this;
    const keep = this.onlyPath ? this.pathOrAbove() : null;
    const rows = new Int32Array(trace.count);
    this.rowOf = new Int32Array(trace.count).fill(-1);
    let count = 0;
    for (let span = 0; span < trace.count; span++) {
      if (keep && !keep[span]) continue;
      this.rowOf[span] = count;
      rows[count++] = span;
      if (this.folded.has(span)) span = trace.end(span) - 1;
    }
    this.rows = rows.subarray(0, count);
  }

  get length() { return this.rows.length; }

  pathOrAbove() {
    if (this.onPath) return this.onPath;
    const { critical, parents, count } = this.trace;
    this.onPath = new Uint8Array(count);
    for (let span = count - 1; span >= 0; span--) {
      if (critical[span] > 0) this.onPath[span] = 1;
      if (this.onPath[span] && parents[span] >= 0) this.onPath[parents[span]] = 1;
    }
    return this.onPath;
  }

  toggle(span) {
    if (!this.trace.hasChildren(span)) return;
    if (!this.folded.delete(span)) this.folded.add(span);
    this.lay();
  }

  // Folds all but the first two levels, or unfolds everything.
  foldAll() {
    if (this.folded.size > 0) this.folded.clear();
    else for (let span = 0; span < this.trace.count; span++) {
      if (this.trace.depths[span] === 1 && this.trace.hasChildren(span)) this.folded.add(span);
    }
    this.lay();
  }

  // Makes a span visible; says whether rows changed.
  uncover(span) {
    let changed = false;
    for (let above = this.trace.parents[span]; above >= 0; above = this.trace.parents[above]) {
      changed = this.folded.delete(above) || changed;
    }
    if (this.onlyPath && !this.pathOrAbove()[span]) {
      this.onlyPath = false;
      changed = true;
    }
    if (changed) this.lay();
    return changed;
  }

  // Each distinct name is compared once, so that a key stroke costs a look-up per span.
  search(find) {
    this.find = find;
    const { trace } = this;
    const wanted = find.trim().toLowerCase();
    this.matches = null;
    this.found = 0;
    if (!wanted) return;
    const has = (names) => names.map((name) => name.toLowerCase().includes(wanted));
    const [operations, services, stages] = [has(trace.operations), has(trace.services), has(trace.stageNames)];
    const byId = /^[0-9a-f]{16}$/.test(wanted) ? trace.find(wanted) : -1;
    this.matches = new Uint8Array(trace.count);
    for (let span = 0; span < trace.count; span++) {
      if (operations[trace.operation[span]] || services[trace.service[span]] || stages[trace.stage[span]] || span === byId) {
        this.matches[span] = 1;
        this.found++;
      }
    }
  }

  isFaded(span) { return this.matches !== null && !this.matches[span]; }

  // The next span that matches, round the end; -1 where none does.
  match(after, step) {
    if (!this.found) return -1;
    const { count } = this.trace;
    let span = after;
    do span = (span + step + count) % count; while (!this.matches[span]);
    return span;
  }
}
