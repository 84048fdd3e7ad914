"""What is read of the machine and the container: real files here, planted trees for what this one lacks."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailscope import _signals
from tailscope._signals._cgroup import Throttling, find_cgroup
from tailscope._signals._facts import facts, omp_threads
from tailscope._signals._files import KeptFile, fields_of, number_of
from tailscope._signals._machine import Machine, container_metrics, stalled_seconds, tcp_retransmits
from tailscope._signals._process import Process

if TYPE_CHECKING:
    from tailscope._signals._instruments import Metric

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells this in /proc of Linux alone")


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a tree of small files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def point(metrics: list[Metric], name: str, **attributes: str | int) -> Any:
    """Return the value of one point; `_` in an attribute's name stands for a dot."""
    wanted = {key.replace("_", "."): value for key, value in attributes.items()}
    (metric,) = [metric for metric in metrics if metric.name == name]
    (found,) = [each.value for each in metric.points if wanted.items() <= each.attributes.items()]
    return found


V2 = {
    "self/cgroup": "0::/kubepods/pod1/box\n",
    "kubepods/pod1/box/cpu.max": "150000 100000\n",
    "kubepods/pod1/box/cpu.stat": "usage_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 123456\n",
    "kubepods/pod1/box/memory.current": "1048576\n",
    "kubepods/pod1/box/memory.max": "max\n",
    "kubepods/pod1/box/memory.events": "low 0\nhigh 3\nmax 2\noom 0\n",
    "kubepods/pod1/memory.max": "4194304\n",
    "kubepods/pod1/memory.current": "2000000\n",
    "kubepods/pod1/cpu.max": "max 100000\n",
    "kubepods/cpu.max": "max 100000\n",
}


def test_version_two_tells_quota_throttling_and_memory(tmp_path: Path) -> None:
    cgroup = find_cgroup(plant(tmp_path, V2), tmp_path)

    assert (cgroup.version, cgroup.cpu_limit()) == (2, 1.5)
    assert cgroup.throttling() == Throttling(100, 7, 123_456_000)
    memory = cgroup.memory()
    assert memory is not None
    assert (memory.used_bytes, memory.limit_bytes, memory.reclaims) == (1_048_576, 4_194_304, 5)


def test_the_tightest_quota_on_the_way_up_counts(tmp_path: Path) -> None:
    tree = {
        **V2,
        "kubepods/pod1/cpu.max": "50000 100000\n",
        "kubepods/pod1/cpu.stat": "nr_periods 9\nnr_throttled 8\nthrottled_usec 7\n",
    }
    cgroup = find_cgroup(plant(tmp_path, tree), tmp_path)

    assert cgroup.cpu_limit() == 0.5
    assert cgroup.throttling() == Throttling(9, 8, 7_000)


def test_a_container_that_sees_the_hosts_path_finds_its_group_at_the_top(tmp_path: Path) -> None:
    tree = {
        "self/cgroup": "12:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.stat": "nr_periods 5\nnr_throttled 2\nthrottled_time 1234567\n",
        "memory/memory.usage_in_bytes": "77\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    cgroup = find_cgroup(plant(tmp_path, tree), tmp_path)

    assert (cgroup.version, cgroup.cpu_limit()) == (1, 2.0)
    assert cgroup.throttling() == Throttling(5, 2, 1_234_567)
    memory = cgroup.memory()
    assert memory is not None
    assert (memory.used_bytes, memory.limit_bytes, memory.reclaims) == (77, None, None)


def test_version_one_without_a_quota_has_no_limit(tmp_path: Path) -> None:
    tree = {
        "self/cgroup": "1:cpu:/\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    }
    cgroup = find_cgroup(plant(tmp_path, tree), tmp_path)

    assert cgroup.cpu_limit() is None
    assert cgroup.throttling() == Throttling(0, 0, 0)
    assert cgroup.memory() is None


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"self/cgroup": ""},
        {"self/cgroup": "not a line of cgroups\n"},
        {"self/cgroup": "0::/\n", "cpu.max": "garbage\n", "cpu.stat": "nothing here\n"},
        {"self/cgroup": "0::/\n", "cpu.max": "0 0\n"},
        {"self/cgroup": "1:cpu:/x\n"},
        {"self/cgroup": "0::/../../outside\n"},
    ],
)
def test_no_group_or_a_hidden_one_is_no_limit(tmp_path: Path, files: dict[str, str]) -> None:
    cgroup = find_cgroup(plant(tmp_path, files), tmp_path)

    assert cgroup.cpu_limit() is None
    assert cgroup.throttling() is None
    assert list(container_metrics(cgroup)) == []


def test_the_containers_metrics_have_what_the_files_say(tmp_path: Path) -> None:
    metrics = list(container_metrics(find_cgroup(plant(tmp_path, V2), tmp_path)))

    assert point(metrics, "container.cpu.limit") == 1.5
    assert point(metrics, "tailscope.container.cpu.throttled_time") == pytest.approx(0.123456)
    assert point(metrics, "container.memory.usage") == 1_048_576
    assert point(metrics, "tailscope.container.memory.reclaims") == 5


MACHINE = {
    "stat": "cpu  100 20 300 4000 50 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n",
    "meminfo": "MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 600 kB\nBuffers: 50 kB\nCached: 300 kB\n",
    "vmstat": "pgfault 500\npgmajfault 20\n",
    "net/snmp": "Ip: a b\nIp: 1 2\nTcp: InSegs RetransSegs OutRsts\nTcp: 10 42 1\n",
    "pressure/cpu": "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=500000\n",
    "pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
}


def test_the_machines_metrics_have_what_the_files_say(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    machine = Machine(plant(tmp_path, MACHINE))
    metrics = list(machine.metrics())

    assert machine.steal_s() == 80 / ticks
    assert point(metrics, "system.cpu.time", cpu_mode="steal") == 80 / ticks
    assert point(metrics, "system.cpu.time", cpu_mode="interrupt") == pytest.approx(13 / ticks)
    assert point(metrics, "system.memory.usage", system_memory_state="used") == 450 * 1024
    assert point(metrics, "system.memory.limit") == 1000 * 1024
    assert point(metrics, "system.paging.faults", system_paging_fault_type="major") == 20
    assert point(metrics, "tailscope.host.tcp.retransmits") == 42
    assert point(metrics, "tailscope.host.pressure.time", resource="cpu", kind="some") == 2.5
    assert point(metrics, "tailscope.host.pressure.time", resource="cpu", kind="full") == 0.5


def test_a_machine_that_hides_everything_tells_its_number_of_cpus(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    assert [metric.name for metric in machine.metrics()] == ["system.cpu.logical.count"]
    assert machine.steal_s() is None


@LINUX
def test_this_machine_is_read(tmp_path: Path) -> None:
    del tmp_path
    machine = Machine(Path("/proc"))
    before = point(list(machine.metrics()), "system.cpu.time", cpu_mode="user")
    end_s = os.times().user + 0.1
    while os.times().user < end_s:
        pass
    metrics = list(machine.metrics())

    assert point(metrics, "system.cpu.time", cpu_mode="user") >= before + 0.05
    total = point(metrics, "system.memory.limit")
    assert 0 < point(metrics, "system.memory.usage", system_memory_state="used") < total


@LINUX
def test_this_process_is_read() -> None:
    metrics = list(Process(Path("/proc")).metrics())
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(Path("/proc/self/stat").open())
        later = list(Process(Path("/proc")).metrics())

    name = "process.unix.file_descriptor.count"
    assert point(later, name) == point(metrics, name) + 3
    assert point(metrics, "process.thread.count") >= 1
    assert 0 < point(metrics, "process.uptime") < 86_400
    assert point(later, "process.uptime") > point(metrics, "process.uptime")
    assert point(metrics, "process.memory.usage") > 10 << 20
    assert point(metrics, "process.cpu.time", cpu_mode="user") > 0
    assert (
        point(metrics, "cpython.gc.collections", cpython_gc_generation=2) == gc.get_stats()[2]["collections"]
    )


def test_a_hidden_proc_leaves_what_the_interpreter_knows(tmp_path: Path) -> None:
    names = {metric.name for metric in Process(tmp_path).metrics()}

    assert {"process.cpu.time", "process.thread.count", "cpython.gc.collections"} <= names
    assert not {"process.memory.usage", "process.unix.file_descriptor.count"} & names


def test_a_kept_file_is_read_anew_and_one_that_is_gone_stays_gone(tmp_path: Path) -> None:
    path = tmp_path / "counter"
    path.write_text("1")
    file = KeptFile(path)
    assert file.read() == b"1"
    path.write_text("22")
    assert file.read() == b"22"
    absent = KeptFile(tmp_path / "absent")
    assert absent.read() == b""
    (tmp_path / "absent").write_text("late")
    assert absent.read() == b""
    file.close()
    assert file.read() == b"22"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("1")
    path.chmod(0)

    assert KeptFile(path).read() == b""


def test_odd_content_is_left_out() -> None:
    assert fields_of(b"a 1\nb: 2 kB\nc x\n\nlonely\nd -3\n") == {"a": 1, "b": 2, "d": -3}
    assert [number_of(text) for text in (b"5\n", b"-1", b"max\n", b"", b"1 2")] == [5, -1, None, None, None]
    assert tcp_retransmits(b"Tcp: RetransSegs\n") is None
    assert tcp_retransmits(b"Tcp: Other\nTcp: 1\n") is None
    assert stalled_seconds(b"some total=x\nfull\n") == {}


def test_a_resource_says_how_many_cpus_there_are_and_how_many_threads_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    told = facts({"OMP_NUM_THREADS": "64,2"})

    assert told["host.cpu.count"] == os.cpu_count()
    assert told["omp.threads"] == 64
    assert omp_threads({"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "3"}) == 3
    assert omp_threads({}) is None
    assert set(_signals.resource_facts()) >= {"host.cpu.count"}


@LINUX
def test_a_process_that_is_pinned_has_no_more_cpus_than_that() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one CPU cannot be fewer")
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert facts({})["container.cpu.limit"] <= 1.0
    finally:
        os.sched_setaffinity(0, allowed)
