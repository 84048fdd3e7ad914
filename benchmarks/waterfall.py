"""How fluid the waterfall is at 100,000 spans: frames while scrolling, zooming and searching, in Chromium.

Sends one trace to a collector of its own, opens the Trace page of a real dashboard in headless Chromium and
reads the time of every frame from the browser (n = frames of each gesture). `script` is what the page itself
takes of a frame; `frame` is from one frame to the next, which also holds the browser's painting, in software.

    python benchmarks/waterfall.py [--spans 100000]
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from tailscope_analyzer import connect
from tailscope_dashboard import _spans as spans
from tailscope_dashboard._child import collector_on
from tests.dashboard.browsers import FLAGS, chromium
from tests.dashboard.processes import dashboard
from tests.dashboard.traffic import CLIENT, INTERNAL, SERVER, START_NS, attribute, send

if TYPE_CHECKING:
    from playwright.sync_api import Page

SPANS_PER_POST = 5_000
STAGES = ("preprocess", "queue", "inference", "postprocess", "serialize")
TRACE = (0xBEEF).to_bytes(16, "big")
BAR_MS = 16.0

WATCH = """() => {
  const ask = window.requestAnimationFrame.bind(window);
  window.script = new Map();
  window.requestAnimationFrame = (run) => ask((now) => {
    const began = performance.now();
    run(now);
    window.script.set(now, (window.script.get(now) ?? 0) + performance.now() - began);
  });
}"""
"""Adds up what the callbacks of each frame take, by the moment of the frame."""

GESTURE = """async ([gesture, frames]) => {
  const host = [...document.querySelectorAll('*')].find((one) => one.shadowRoot?.querySelector('.scroll'));
  const root = host?.shadowRoot ?? document;
  const scroll = root.querySelector('.scroll'), find = root.querySelector('.find');
  const canvas = scroll.querySelector('canvas'), box = canvas.getBoundingClientRect();
  const middle = { clientX: box.left + box.width * 0.7, clientY: box.top + 200 };
  const place = { bubbles: true, cancelable: true, ...middle };
  const wheel = (options) => canvas.dispatchEvent(new WheelEvent('wheel', { ...place, ...options }));
  const click = (name) => root.querySelector(`[data-do='${name}']`).click();
  const words = ['s', 'st', 'step', 'step 1', 'queue', 'model', ''];
  const say = (text) => { find.value = text; find.dispatchEvent(new Event('input')); };
  const gestures = {
    scroll: () => { scroll.scrollTop += 240; },
    jump: (k) => { scroll.scrollTop = (scroll.scrollHeight / frames) * k; },
    zoom: (k) => wheel({ ctrlKey: true, deltaY: k < frames / 2 ? -100 : 100 }),
    pan: (k) => wheel({ shiftKey: true, deltaY: k % 40 < 20 ? 60 : -60 }),
    search: (k) => say(words[k % words.length]),
    fold: () => click('collapse'),
    'critical only': () => click('path'),
  };
  const frame = () => new Promise(requestAnimationFrame);
  const script = [], times = [];
  let last = await frame();
  for (let k = 0; k < frames; k++) {
    const began = performance.now();
    gestures[gesture](k);
    const input = performance.now() - began;
    const now = await frame();
    times.push(now - last);
    last = now;
    await new Promise((done) => setTimeout(done)); // until all callbacks of this frame have run
    script.push(input + (window.script.get(now) ?? 0));
  }
  return { times, script };
}"""


def trace_of(count: int, seed: int = 1) -> dict[str, list[Span]]:
    """Return one trace of so many spans: calls that fan out over services, stages below each."""
    rng = random.Random(seed)
    made: dict[str, list[Span]] = {"gateway": [], "ranker": [], "model": []}
    total_ns = count * 20_000
    root = _span(made["gateway"], 0, b"", "POST /rank", SERVER, START_NS, total_ns)
    number, at = 1, START_NS + 10_000
    while number < count:
        room = min(int((rng.gammavariate(2, 10) + 2) * 20_000), START_NS + total_ns - at - 1)
        call = _span(made["gateway"], number, root.span_id, f"call {number % 40}", CLIENT, at, room)
        served = _span(made["ranker"], number + 1, call.span_id, "rank", SERVER, at + 2_000, room - 4_000)
        number += 2
        inner = at + 4_000
        for place in range(min(rng.randrange(4, 30), count - number)):
            length = max((room - 8_000) // 30, 1_000)
            step = _span(made["model"], number, served.span_id, f"step {place}", INTERNAL, inner, length)
            step.attributes.append(attribute("tailscope.stage", STAGES[place % len(STAGES)]))
            if place % len(STAGES) == 2:
                step.attributes.append(attribute("gpu.time_ms", str(length / 2e6)))
            if number % 50 == 0:
                step.events.add(time_unix_nano=inner + length // 2, name="retry")
            inner += length
            number += 1
        at += room
    return made


def _span(
    into: list[Span],
    number: int,
    parent: bytes,
    name: str,
    kind: Span.SpanKind.ValueType,
    at: int,
    length: int,
) -> Span:
    made = Span(
        trace_id=TRACE,
        span_id=(number + 1).to_bytes(8, "big"),
        parent_span_id=parent,
        name=name,
        kind=kind,
        start_time_unix_nano=at,
        end_time_unix_nano=at + max(length, 1_000),
    )
    into.append(made)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Send, draw, measure, print; 1 where a median frame takes the page more than 16 ms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=120)
    asked = parser.parse_args(arguments)
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as data, collector_on(Path(data)) as collector:
        _send(collector, trace_of(asked.spans))
        _print_sizes(collector)
        with dashboard("--url", collector) as app, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.add_init_script(f"({WATCH})()")
            print(f"browser: Chromium {browser.version}, software rendering")
            _print_opening(page, f"{app}/trace?trace={TRACE.hex()}")
            worst = _print_frames(page, asked.frames)
            browser.close()
    return int(worst > BAR_MS)


def _send(collector: str, made: dict[str, list[Span]]) -> None:
    for service, some in made.items():
        for start in range(0, len(some), SPANS_PER_POST):
            send(collector, {service: some[start : start + SPANS_PER_POST]})


def _print_sizes(collector: str) -> None:
    with connect(collector) as client:
        began = time.perf_counter()
        outline: Any = client.outline(TRACE.hex())
        asked_s = time.perf_counter() - began
    began = time.perf_counter()
    laid = spans.laid_out(outline)
    laid_s = time.perf_counter() - began
    pieces, work = len(outline["critical_path"]["span"]), len(outline["gpu"]["span"])
    print(f"{len(laid):,} spans, {pieces:,} pieces of the critical path, {work:,} of GPU work")
    print(f"outline from the collector: {asked_s:.2f} s; laid out: {laid_s:.2f} s")
    print(f"sent to the browser: {len(laid.columns) / 1e6:.1f} MB")


def _print_opening(page: Page, url: str) -> None:
    for name in ("first look", "again"):
        began = time.perf_counter()
        page.goto(url)
        page.locator(".scroll canvas[data-top]").wait_for(timeout=120_000)
        print(f"page to waterfall, {name}: {time.perf_counter() - began:.2f} s")
    page.wait_for_timeout(3_000)


def _print_frames(page: Page, frames: int) -> float:
    titles = ("script p50", "p95", "max", "frame p50", "p95", "max")
    widths = (12, 8, 8, 12, 8, 8)
    heads = "".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True))
    print(f"\n{'gesture':<15}{'n':>5}{heads}  ms")
    worst = 0.0
    for gesture in ("scroll", "jump", "zoom", "pan", "search", "fold", "critical only"):
        found = page.evaluate(GESTURE, [gesture, frames])
        script, times = sorted(found["script"]), sorted(found["times"])
        worst = max(worst, _quantile(script, 0.5))
        cells = [_quantile(values, q) for values in (script, times) for q in (0.5, 0.95, 1.0)]
        print(
            f"{gesture:<15}{len(times):>5}"
            + "".join(f"{c:>{w}.1f}" for c, w in zip(cells, widths, strict=True))
        )
    return worst


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


if __name__ == "__main__":
    raise SystemExit(main())
