// The map of services as SVG. Places come from Python; names and figures go to textContent, never to HTML.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 10;
const LEAST_SCALE = 0.72; // below it the words could not be read: the map is scrolled sideways instead
const LINE = 15; // px between the lines of a label
const LONGEST = 21; // letters of a name in its box; the tooltip has all of them

let focused = null; // what had the keyboard's focus: a choice redraws the page

export default function (component) {
  const { parentElement, data, setTriggerValue } = component;
  const svg = parentElement.querySelector("svg");
  const scroll = parentElement.querySelector(".scroll");
  const abort = new AbortController();
  const choose = (names) => setTriggerValue("chosen", names);
  svg.replaceChildren();
  for (const edge of data.edges) svg.append(edgeOf(edge, data, choose, abort.signal));
  for (const service of data.services) svg.append(serviceOf(service, data, choose, abort.signal));
  const fit = () => {
    const scale = Math.min(1.25, Math.max(LEAST_SCALE, scroll.clientWidth / (data.width + 2 * MARGIN)));
    svg.setAttribute("width", (data.width + 2 * MARGIN) * scale);
    svg.setAttribute("height", (data.height + 2 * MARGIN) * scale);
  };
  svg.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${data.width + 2 * MARGIN} ${data.height + 2 * MARGIN}`);
  const watcher = new ResizeObserver(fit);
  watcher.observe(scroll);
  fit();
  if (focused) svg.querySelector(`[data-id="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  return () => { abort.abort(); watcher.disconnect(); };
}

function serviceOf(service, data, choose, signal) {
  const [width, height] = data.box;
  const state = [service.traced ? "" : "peer", service.failing ? "failing" : "", service.chosen ? "chosen" : ""];
  const group = button(`service ${state.join(" ")}`, [service.name], service, choose, signal);
  group.setAttribute("transform", `translate(${service.x} ${service.y})`);
  group.append(
    made("rect", { width, height }),
    words(shortened(service.name), { x: width / 2, y: service.lines.length > 1 ? 20 : 26, class: "name" }),
    ...service.lines.map((line, at) =>
      words(marked(line, service.failing && at > 0), { x: width / 2, y: (service.lines.length > 1 ? 37 : 44) + at * LINE, class: at ? "said mark" : "said" })),
  );
  return group;
}

function edgeOf(edge, data, choose, signal) {
  const state = [edge.failing ? "failing" : "", edge.chosen ? "chosen" : ""];
  const group = button(`edge ${state.join(" ")}`, [edge.caller, edge.callee], edge, choose, signal);
  const d = curve(edge.points);
  const lines = edge.lines.map((line, at) => marked(line, edge.failing && at === 0));
  const width = 12 + 6.5 * Math.max(...lines.map((line) => line.length));
  const [x, y] = edge.label;
  group.append(
    made("path", { d, class: "reach" }),
    made("path", { d, class: "line", "stroke-width": edge.weight }),
    made("path", { d: head(edge.points), class: "tip" }),
    made("rect", { x: x - width / 2, y: y - LINE - 2, width, height: 2 * LINE + 4 }),
    ...lines.map((line, at) => words(line, { x, y: y - 4 + at * LINE })),
  );
  return group;
}

function button(kind, names, what, choose, signal) {
  const group = made("g", { class: kind, tabindex: 0, role: "button", "aria-pressed": String(what.chosen) });
  const id = JSON.stringify(names);
  group.dataset.id = id;
  group.setAttribute("aria-label", what.spoken);
  const title = made("title", {});
  title.textContent = what.spoken;
  group.append(title);
  const act = () => { focused = id; choose(what.chosen ? [] : names); };
  group.addEventListener("click", act, { signal });
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  }, { signal });
  return group;
}

function curve(points) {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i++) {
    const [ax, ay] = points[i - 1], [bx, by] = points[i];
    d += ` C${(ax + bx) / 2} ${ay} ${(ax + bx) / 2} ${by} ${bx} ${by}`;
  }
  return d;
}

function head(points) {
  const [x, y] = points[points.length - 1];
  const way = Math.sign(x - points[points.length - 2][0]) || 1;
  return `M${x} ${y} l${-10 * way} -5 v10 z`;
}

function made(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function words(text, attributes) {
  const element = made("text", { "text-anchor": "middle", ...attributes });
  element.textContent = text;
  return element;
}

function marked(line, failing) {
  return failing ? `\u25b2 ${line}` : line;
}

function shortened(name) {
  return name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}\u2026` : name;
}
