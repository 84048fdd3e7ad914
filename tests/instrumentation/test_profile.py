"""profile_slow: one profile of a request that is turning slow, linked to its trace."""

from __future__ import annotations

import asyncio
import pstats
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope import _profile
from tailscope._hooks import HOOKS
from tailscope._profile import Profiling, profile_slow

if TYPE_CHECKING:
    import subprocess

Spans = Callable[[], list[Any]]
Watch = Callable[..., Profiling]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Start a watch on requests of 60 ms that ends with the test."""
    started: list[Profiling] = []

    def start(**options: Any) -> Profiling:
        options = {"threshold_ms": 60, "every_s": 0.0, "directory": tmp_path, **options}
        started.append(profile_slow(**options))
        return started[-1]

    yield start
    for watching in started:
        watching.stop()
    _profile.WATCH.current = None


def wait_for(condition: Callable[[], bool], what: str, within_s: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"after {within_s} s still not: {what}"
        time.sleep(0.005)


def wait_until_taken(watching: Profiling, count: int) -> None:
    """Wait until so many profiles were written."""
    wait_for(lambda: watching.taken >= count, f"{count} profiles were written")


def spin_in_the_model(duration_s: float) -> int:
    """Work, as a model does."""
    deadline, turns = time.monotonic() + duration_s, 0
    while time.monotonic() < deadline:
        turns += 1
    return turns


def by_name(recorded: Spans) -> dict[str, Any]:
    """Return the spans that arrived."""
    return {span.name: span for span in recorded()}


def test_the_stack_of_the_slow_request_itself_is_sampled(recorded: Spans, watch: Watch) -> None:
    watching = watch()
    with tailscope.request("slow"):
        spin_in_the_model(0.4)
    wait_until_taken(watching, 1)

    span = by_name(recorded)["slow"]
    path = Path(span.attributes["tailscope.profile.path"])
    assert span.attributes["tailscope.profile.kind"] == "stacks"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith(f"trace_id={span.trace_id} span_id={span.span_id}") for line in lines)
    samples = sum(int(line.rpartition(" ")[2]) for line in lines)
    inside = sum(int(line.rpartition(" ")[2]) for line in lines if "spin_in_the_model (" in line)
    assert samples >= 10
    assert inside / samples > 0.8


def test_the_path_leads_to_the_file_from_anywhere(
    recorded: Spans, watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watching = watch(directory="profiles")
    with tailscope.request("slow"):
        spin_in_the_model(0.4)
    wait_until_taken(watching, 1)

    path = Path(by_name(recorded)["slow"].attributes["tailscope.profile.path"])
    assert path.parent == tmp_path / "profiles"
    assert path.is_file()


def test_a_fast_request_is_not_profiled(recorded: Spans, watch: Watch, tmp_path: Path) -> None:
    watching = watch()
    for _ in range(5):
        with tailscope.request("fast"):
            time.sleep(0.005)
    time.sleep(0.1)

    assert watching.taken == 0
    assert list(tmp_path.iterdir()) == []
    assert "tailscope.profile.path" not in by_name(recorded)["fast"].attributes


def test_a_suspended_task_shows_what_it_awaits_and_not_its_neighbours(recorded: Spans, watch: Watch) -> None:
    async def ask_the_feature_store() -> None:
        await asyncio.sleep(0.3)

    async def serve() -> None:
        with tailscope.request("slow"):
            await ask_the_feature_store()

    async def neighbour() -> None:
        for _ in range(30):
            spin_in_the_model(0.01)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(serve(), neighbour())

    watching = watch()
    asyncio.run(main())
    wait_until_taken(watching, 1)

    text = Path(by_name(recorded)["slow"].attributes["tailscope.profile.path"]).read_text(encoding="utf-8")
    assert "ask_the_feature_store (" in text
    assert "(waits)" in text
    assert "spin_in_the_model" not in text


def test_a_task_that_runs_shows_its_functions_and_not_the_event_loop(recorded: Spans, watch: Watch) -> None:
    async def serve() -> None:
        with tailscope.request("slow"):
            spin_in_the_model(0.3)

    watching = watch()
    asyncio.run(serve())
    wait_until_taken(watching, 1)

    text = Path(by_name(recorded)["slow"].attributes["tailscope.profile.path"]).read_text(encoding="utf-8")
    assert "spin_in_the_model (" in text
    assert "run_forever" not in text


def test_profiles_are_rare_and_the_oldest_files_go(recorded: Spans, watch: Watch, tmp_path: Path) -> None:
    watching = watch(keep=2)
    for number in range(4):
        with tailscope.request(f"slow {number}"):
            time.sleep(0.12)
        wait_until_taken(watching, number + 1)
    watching.stop()
    rare = watch(every_s=60, keep=2)
    for _ in range(3):
        with tailscope.request("slow too"):
            time.sleep(0.12)
    wait_until_taken(rare, 1)
    time.sleep(0.1)

    assert rare.taken == 1
    assert len(list(tmp_path.iterdir())) == 2
    paths = {span.attributes.get("tailscope.profile.path") for span in recorded()}
    assert len(paths - {None}) == 5


def test_one_request_is_profiled_at_a_time(recorded: Spans, watch: Watch) -> None:
    watching = watch(every_s=60)

    def serve() -> None:
        with tailscope.request("slow"):
            time.sleep(0.25)

    threads = [threading.Thread(target=serve) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    wait_until_taken(watching, 1)

    linked = [span for span in recorded() if "tailscope.profile.path" in span.attributes]
    assert len(linked) == 1


def test_cprofile_records_a_later_request_of_the_same_name_that_is_slow_again(
    recorded: Spans, watch: Watch
) -> None:
    watching = watch(kind="cprofile")
    for name in ("predict", "other", "predict", "predict"):
        with tailscope.request(name):
            spin_in_the_model(0.1)
    wait_until_taken(watching, 1)

    spans = [span for span in recorded() if "tailscope.profile.path" in span.attributes]
    assert [span.name for span in spans] == ["predict"]
    stats: Any = pstats.Stats(spans[0].attributes["tailscope.profile.path"])
    functions = {name for _, _, name in stats.stats}
    assert "spin_in_the_model" in functions
    assert spans[0].trace_id in spans[0].attributes["tailscope.profile.path"]


def test_cprofile_gives_up_on_requests_that_are_fast_again(watch: Watch, recorded: Spans) -> None:
    watching = watch(kind="cprofile")
    with tailscope.request("predict"):
        time.sleep(0.1)
    rehearsal: Any = watching._rehearsal
    assert rehearsal._wanted == "predict"
    for _ in range(25):
        with tailscope.request("predict"):
            pass

    assert rehearsal._wanted is None
    assert watching.taken == 0
    assert recorded()


def test_cprofile_that_another_thread_ends_does_not_stay_on(watch: Watch, recorded: Spans) -> None:
    watching = watch(kind="cprofile")
    rehearsal: Any = watching._rehearsal
    with tailscope.request("predict"):
        time.sleep(0.1)
    request = tailscope.request("predict")
    request.__enter__()
    ender = threading.Thread(target=request.end)
    ender.start()
    ender.join(10)
    assert len(rehearsal._strays) == 1
    with tailscope.request("next"):
        pass

    assert sys.getprofile() is None
    assert rehearsal._strays == []
    request.__exit__(None, None, None)
    assert recorded()


def test_a_directory_that_cannot_be_written_is_counted_and_harms_nobody(
    recorded: Spans, watch: Watch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory", encoding="utf-8")
    watch(directory=blocked / "below")
    with tailscope.request("slow"):
        time.sleep(0.2)
    wait_for(lambda: "internal:profile:write" in tailscope.stats().errors, "the failure was counted")

    assert by_name(recorded)["slow"].status[0] == 0


def test_torch_that_the_service_has_not_imported_is_said_once(
    recorded: Spans, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    watching = watch(kind="torch")
    with tailscope.request("slow"):
        time.sleep(0.2)

    assert tailscope.stats().errors["profile:torch"] >= 1
    assert watching.taken == 0
    assert "tailscope.profile.path" not in by_name(recorded)["slow"].attributes


def test_an_unknown_kind_is_said_and_stacks_are_taken(watch: Watch) -> None:
    watching = watch(kind="perf")

    assert watching._plan.kind == "stacks"
    assert tailscope.stats().errors["profile:kind"] == 1


@pytest.mark.parametrize(
    ("option", "value"), [("threshold_ms", float("nan")), ("every_s", -1), ("keep", "many"), ("keep", None)]
)
def test_an_option_that_cannot_be_is_said_and_the_default_used(
    watch: Watch, option: str, value: object
) -> None:
    plan = watch(**{option: value})._plan

    assert tailscope.stats().errors == {"profile:option": 1}
    assert plan.threshold_ns in {60_000_000, 1_000_000_000}
    assert plan.every_ns in {0, 60_000_000_000}
    assert plan.keep == 10


def test_without_a_watch_requests_pay_nothing_and_stop_ends_it(watch: Watch, recorded: Spans) -> None:
    before = HOOKS.begin
    watching = watch()
    assert HOOKS.begin is not before
    watching.stop()
    watching.stop()

    with tailscope.request("slow"):
        time.sleep(0.1)
    assert watching._flights == {}
    assert watching.taken == 0
    assert recorded()


def test_a_forked_child_profiles_its_own_requests(
    run_python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    program = f"""
import os, time, pathlib
import tailscope
from tailscope._profile import profile_slow

tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
watch = profile_slow(threshold_ms=30, every_s=0, directory={str(tmp_path)!r})
with tailscope.request("parent"):
    time.sleep(0.005)
child = os.fork()
if child == 0:
    with tailscope.request("child"):
        time.sleep(0.3)
    deadline = time.monotonic() + 10
    while not watch.taken and time.monotonic() < deadline:
        time.sleep(0.01)
    os._exit(0 if watch.taken else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(watch.taken)
"""
    result = run_python(program)

    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "0"
    assert len(list(tmp_path.iterdir())) == 1
