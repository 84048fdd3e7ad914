// An editor for one question in SQL: a plain textarea (undo, selection, dead keys and screen readers work as anywhere)
// over a painted copy of its text, with completion of views, columns, macros and keywords.
// Texts go to textContent, never to HTML. Named questions stay in the browser's localStorage.

const STORE = "tailscope.questions";
const MOST_SHOWN = 60;
const MOST_SAVED = 500;
const LINE = 20; // px, as in editor.css
const PADDING = { x: 12, y: 10 };
const TOKENS = /(--[^\n]*|\/\*[\s\S]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|([\s\S])/g;
const OTHER_KEYWORDS = "using full outer cross semi anti union except intersect values offset nulls first last exists any cast try_cast filter within row rows range preceding following unbounded current lateral true false pivot unpivot sample".split(" ");

const kept = { shown: null, text: null }; // what Python sent last and what the reader made of it: a redraw must not undo it

export default function (component) {
  const editor = new Editor(component.parentElement, component.data, (text) => component.setTriggerValue("run", text));
  return () => editor.close();
}

class Editor {
  constructor(root, data, run) {
    this.root = root;
    this.words = data.words;
    this.run = run;
    this.abort = new AbortController();
    for (const name of ["paint", "text", "list", "saved", "naming", "name", "spoken"]) this[name] = root.querySelector("." + name);
    this.file = root.querySelector("input[type=file]");
    this.kinds = new Map();
    for (const { word, kind } of [...this.words].reverse()) this.kinds.set(word.toLowerCase(), kind);
    for (const word of OTHER_KEYWORDS) if (!this.kinds.has(word)) this.kinds.set(word, "keyword");
    this.pen = document.createElement("canvas").getContext("2d");
    this.found = [];
    this.at = -1;
    if (kept.shown !== data.query) Object.assign(kept, { shown: data.query, text: data.query });
    if (this.text.value !== kept.text) this.text.value = kept.text;
    this.listen();
    this.fillSaved();
    this.draw();
  }

  close() { this.abort.abort(); this.watcher.disconnect(); }

  listen() {
    const on = (target, event, act) => target.addEventListener(event, act.bind(this), { signal: this.abort.signal });
    on(this.text, "input", () => { kept.text = this.text.value; this.draw(); this.complete(false); });
    on(this.text, "scroll", () => { this.follow(); this.hide(); });
    on(this.text, "keydown", this.key);
    on(this.text, "click", this.hide);
    on(this.text, "blur", this.hide);
    on(this.list, "pointerdown", (event) => { // before blur takes the list away
      event.preventDefault();
      const item = event.target.closest("li");
      if (item) this.accept(Number(item.dataset.at));
    });
    on(this.saved, "change", this.load);
    on(this.file, "change", this.read);
    on(this.naming, "submit", (event) => { event.preventDefault(); this.save(this.name.value.trim()); });
    on(this.naming, "keydown", (event) => { if (event.key === "Escape") this.closeNaming(); });
    for (const button of this.root.querySelectorAll("[data-do]")) on(button, "click", () => this.act(button.dataset.do));
    this.watcher = new ResizeObserver(() => { this.paint.style.height = `${this.text.clientHeight}px`; this.follow(); });
    this.watcher.observe(this.text);
  }

  act(what) {
    if (what === "run") this.ask();
    if (what === "save") this.openNaming();
    if (what === "cancel") this.closeNaming();
    if (what === "forget") this.forget();
    if (what === "export") this.export();
    if (what === "import") this.file.click();
  }

  ask() {
    const text = this.text.value.trim();
    this.hide();
    if (text) this.run(text);
  }

  key(event) {
    const open = !this.list.hidden;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.ask(); return; }
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); this.complete(true); return; }
    if (!open || event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (step) { event.preventDefault(); this.point(Math.min(Math.max(this.at + step, 0), this.found.length - 1)); }
    else if (event.key === "Enter" || event.key === "Tab") { event.preventDefault(); this.accept(this.at); }
    else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); this.hide(); }
    else if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) this.hide();
  }

  // --- painting

  draw() {
    const parts = [];
    for (const [word, comment, string, name, number, id] of this.text.value.matchAll(TOKENS)) {
      const kind = comment ? "comment" : string || name ? "string" : number ? "number" : id ? this.kindOf(word) : "";
      if (!kind && parts.length && typeof parts.at(-1) === "string") parts[parts.length - 1] += word;
      else if (!kind) parts.push(word);
      else { const span = document.createElement("span"); span.className = kind; span.textContent = word; parts.push(span); }
    }
    this.paint.replaceChildren(...parts, "\n");
    this.follow();
  }

  kindOf(word) {
    const kind = this.kinds.get(word.toLowerCase());
    return kind === "column" ? "" : kind ?? "";
  }

  follow() { this.paint.scrollTop = this.text.scrollTop; this.paint.scrollLeft = this.text.scrollLeft; }

  // --- completion

  complete(asked) {
    const caret = this.text.selectionStart;
    if (caret !== this.text.selectionEnd) return this.hide();
    const before = this.text.value.slice(0, caret);
    if (insideText(before)) return this.hide();
    const [, qualifier = "", word] = before.match(/(?:(\w+)\.)?(\w*)$/);
    if (!asked && !word && !qualifier) return this.hide();
    if (!asked && /^\d/.test(word)) return this.hide();
    this.start = caret - word.length;
    this.found = this.matches(word.toLowerCase(), qualifier, before.slice(0, this.start));
    if (this.found.length === 1 && this.found[0].word.toLowerCase() === word.toLowerCase() && !asked) return this.hide();
    if (!this.found.length) return this.hide();
    this.show();
  }

  matches(word, qualifier, before) {
    const used = viewsIn(this.text.value);
    const wantsView = /\b(?:from|join)\s+$/i.test(before);
    const named = used.get(qualifier.toLowerCase()) ?? qualifier.toLowerCase();
    // An alias that is not written yet: the columns of every view.
    const only = this.words.some((one) => one.view === named) ? named : null;
    const views = new Set(used.values());
    const best = new Map();
    for (const one of this.words) {
      if (qualifier && (one.kind !== "column" || (only !== null && one.view !== only))) continue;
      if (wantsView && one.kind !== "view" && one.kind !== "macro") continue;
      const rank = rankOf(one, word, views);
      if (rank < 0) continue;
      const known = best.get(one.word);
      if (known && known.rank <= rank) { if (one.view && known.view) known.views.add(one.view); continue; }
      best.set(one.word, { ...one, rank, views: new Set(one.view ? [one.view] : []) });
    }
    return [...best.values()].sort((a, b) => a.rank - b.rank).slice(0, MOST_SHOWN);
  }

  show() {
    this.list.replaceChildren(...this.found.map((one, at) => {
      const item = document.createElement("li");
      item.setAttribute("role", "option");
      item.id = `completion-${at}`;
      item.dataset.at = at;
      const kind = one.kind === "column" ? [...one.views].join(", ") : one.kind;
      item.append(part("word", one.call ?? one.word), part("note", one.note), part("kind", kind));
      return item;
    }));
    const [x, y] = this.caretPlace();
    this.list.hidden = false;
    this.list.style.left = `${Math.max(0, Math.min(x, this.text.clientWidth - this.list.offsetWidth))}px`;
    this.list.style.top = `${y}px`;
    this.point(0);
  }

  caretPlace() {
    const lines = this.text.value.slice(0, this.start).split("\n");
    this.pen.font = getComputedStyle(this.text).font;
    const width = this.pen.measureText(lines.at(-1).replaceAll("\t", "    ")).width;
    return [PADDING.x + width - this.text.scrollLeft, PADDING.y + lines.length * LINE - this.text.scrollTop + 2];
  }

  point(at) {
    this.at = at;
    for (const item of this.list.children) item.setAttribute("aria-selected", String(Number(item.dataset.at) === at));
    const item = this.list.children[at];
    item?.scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", item?.id ?? "");
    const one = this.found[at];
    this.spoken.textContent = one ? `${one.word}, ${one.kind}, ${at + 1} of ${this.found.length}` : "";
  }

  accept(at) {
    const one = this.found[at];
    if (!one) return;
    const isCall = one.kind === "macro";
    const end = this.text.selectionStart;
    this.text.focus();
    this.text.setSelectionRange(this.start, end);
    this.insert(one.word + (isCall ? "()" : ""));
    if (isCall) this.text.setSelectionRange(this.text.selectionStart - 1, this.text.selectionStart - 1);
    this.hide();
  }

  insert(text) {
    // The one way that leaves the browser's undo whole.
    if (!document.execCommand("insertText", false, text)) {
      this.text.setRangeText(text, this.text.selectionStart, this.text.selectionEnd, "end");
      this.text.dispatchEvent(new Event("input"));
    }
  }

  hide() {
    this.list.hidden = true;
    this.found = [];
    this.text.removeAttribute("aria-activedescendant");
  }

  // --- named questions

  all() {
    try {
      const read = JSON.parse(localStorage.getItem(STORE) ?? "{}");
      return read && typeof read === "object" && !Array.isArray(read) ? read : {};
    } catch { return {}; } // storage is closed, or something else lies there
  }

  write(all) {
    try { localStorage.setItem(STORE, JSON.stringify(all)); return true; }
    catch { this.say("This browser keeps nothing: its storage is closed or full."); return false; }
  }

  fillSaved(chosen = "") {
    const names = Object.keys(this.all()).sort();
    const first = option("", names.length ? `Saved here: ${names.length}` : "Nothing saved here");
    this.saved.replaceChildren(first, ...names.map((name) => option(name, name)));
    this.saved.value = chosen;
    const by = (what) => this.root.querySelector(`[data-do=${what}]`);
    by("export").disabled = !names.length;
    by("forget").disabled = !chosen;
  }

  load() {
    const name = this.saved.value, text = this.all()[name];
    this.fillSaved(name);
    if (typeof text !== "string") return;
    this.text.focus();
    this.text.select();
    this.insert(text);
    this.hide();
  }

  openNaming() { this.naming.hidden = false; this.name.value = this.saved.value; this.name.focus(); this.name.select(); }

  closeNaming() { this.naming.hidden = true; this.text.focus(); }

  save(name) {
    const text = this.text.value.trim();
    if (!name || !text) return this.say("Write a question and a name for it.");
    if (this.write({ ...this.all(), [name]: text })) { this.fillSaved(name); this.say(`Saved as ${name}.`); }
    this.closeNaming();
  }

  forget() {
    const { [this.saved.value]: gone, ...rest } = this.all();
    if (gone !== undefined && this.write(rest)) { this.say("Forgotten."); this.fillSaved(); }
  }

  export() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(this.all(), null, 2)], { type: "application/json" }));
    link.download = "tailscope-questions.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  async read() {
    const [file] = this.file.files;
    this.file.value = "";
    if (!file) return;
    let read;
    try { read = JSON.parse(await file.text()); } catch { return this.say("That file is no JSON of saved questions."); }
    const good = Object.entries(read ?? {}).filter(([name, text]) => name && typeof text === "string").slice(0, MOST_SAVED);
    if (!good.length) return this.say("There is no question in that file.");
    if (this.write({ ...this.all(), ...Object.fromEntries(good) })) { this.fillSaved(); this.say(`${good.length} added.`); }
  }

  say(text) { this.spoken.textContent = text; this.root.querySelector(".hint").textContent = text; }
}

function rankOf(one, word, views) {
  const name = one.word.toLowerCase();
  const place = name.startsWith(word) ? 0 : word.length > 1 && name.includes(word) ? 20 : -1;
  if (place < 0) return -1;
  if (one.kind === "column") return place + (views.has(one.view) ? 0 : 4);
  return place + { view: 1, macro: 2, keyword: 3 }[one.kind];
}

function viewsIn(text) {
  const found = new Map();
  for (const [, view, alias] of text.matchAll(/\b(?:from|join)\s+(\w+)(?:\s+(?:as\s+)?(\w+))?/gi)) {
    found.set(view.toLowerCase(), view.toLowerCase());
    if (alias) found.set(alias.toLowerCase(), view.toLowerCase());
  }
  return found;
}

function insideText(before) {
  let last = "";
  for (const match of before.matchAll(TOKENS)) last = match[0];
  const closed = last.length > 1 && last.endsWith("'");
  return (last.startsWith("'") && !closed) || last.startsWith("--") || (last.startsWith("/*") && !last.endsWith("*/"));
}

function part(kind, text) {
  const made = document.createElement("span");
  made.className = kind;
  made.textContent = text;
  return made;
}

function option(value, text) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = text;
  return made;
}
