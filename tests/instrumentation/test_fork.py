"""Forked workers: own threads, own instance id, nothing sent twice, nothing lost at a normal end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.instrumentation.conftest import Run
    from tests.instrumentation.receiver import Receiver

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")

START = (
    "import os, sys, tailscope\ntailscope.init(service='ranker', endpoint=sys.argv[1], flush_interval_s=60)\n"
)


def test_parent_and_children_each_send_their_own_spans_once(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "with tailscope.request('before'): pass\n"
        "children = []\n"
        "for number in range(3):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        with tailscope.request(f'child {number}'): pass\n"
        "        sys.exit(0)\n"
        "    children.append(pid)\n"
        "print([os.waitpid(pid, 0)[1] for pid in children])\n"
        "with tailscope.request('after'): pass",
        receiver.endpoint,
    )

    assert (done.stdout, done.stderr) == ("[0, 0, 0]\n", "")
    spans = receiver.spans()
    assert sorted(span.name for span in spans) == ["after", "before", "child 0", "child 1", "child 2"]
    instances = {span.name: span.resource["service.instance.id"] for span in spans}
    assert instances["before"] == instances["after"]
    assert len(set(instances.values())) == 4
    assert len({span.resource["process.pid"] for span in spans}) == 4
    assert len({span.trace_id for span in spans}) == 5


def test_a_fork_inside_a_request_keeps_the_trace(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "with tailscope.request('request'):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        with tailscope.stage('inference'): pass\n"
        "        tailscope.flush()\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)",
        receiver.endpoint,
    )

    assert (done.returncode, done.stderr) == (0, "")
    spans = receiver.by_name()
    assert spans["inference"].parent_id == spans["request"].span_id


def test_a_child_that_leaves_the_block_of_its_parent_sends_no_copy_of_it(
    receiver: Receiver, run_python: Run
) -> None:
    done = run_python(
        START + "from opentelemetry import trace\n"
        "tracer = trace.get_tracer('lib')\n"
        "theirs = tracer.start_as_current_span('theirs')\n"
        "with tailscope.request('request'), theirs, tailscope.stage('auth'):\n"
        "    pid = os.fork()\n"
        "    if pid: os.waitpid(pid, 0)\n"
        "with tracer.start_as_current_span('next child' if not pid else 'next parent'): pass",
        receiver.endpoint,
    )

    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(span.name for span in receiver.spans())
    assert names == ["auth", "next child", "next parent", "request", "theirs"]


def test_children_of_multiprocessing_flush_when_they_end(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "import multiprocessing\n"
        "def work(number):\n"
        "    with tailscope.request(f'child {number}'): pass\n"
        "context = multiprocessing.get_context('fork')\n"
        "children = [context.Process(target=work, args=(number,)) for number in range(2)]\n"
        "with tailscope.request('parent'):\n"
        "    for child in children: child.start()\n"
        "    for child in children: child.join(20)\n"
        "print([child.exitcode for child in children])",
        receiver.endpoint,
    )

    assert (done.stdout, done.stderr) == ("[0, 0]\n", "")
    spans = receiver.by_name()
    assert sorted(spans) == ["child 0", "child 1", "parent"]
    assert {spans["child 0"].parent_id, spans["child 1"].parent_id} == {spans["parent"].span_id}
    assert {span.kind for span in spans.values()} == {"server"}


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_worker_of_multiprocessing_that_initialises_itself_flushes(
    receiver: Receiver, run_python: Run, tmp_path: Path, method: str
) -> None:
    (tmp_path / "worker.py").write_text(
        "import tailscope\n"
        "def work(endpoint):\n"
        "    tailscope.init(endpoint=endpoint, flush_interval_s=60)\n"
        "    with tailscope.request('child'): pass\n"
    )
    done = run_python(
        "import multiprocessing, sys\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "import worker\n"
        "context = multiprocessing.get_context(sys.argv[3])\n"
        "child = context.Process(target=worker.work, args=(sys.argv[1],))\n"
        "child.start(); child.join(30); print(child.exitcode)\n",
        receiver.endpoint,
        str(tmp_path),
        method,
    )

    assert (done.stdout, done.stderr) == ("0\n", "")
    assert [span.name for span in receiver.spans()] == ["child"]


def test_a_child_of_a_parent_that_has_sent_sends_too(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "for number in range(3):\n"
        "    with tailscope.request(f'parent {number}'): pass\n"
        "    assert tailscope.flush()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        with tailscope.request(f'child {number}'): pass\n"
        "        sys.exit(0)\n"
        "    print(os.waitpid(pid, 0)[1])",
        receiver.endpoint,
    )

    assert (done.stdout, done.stderr) == ("0\n0\n0\n", "")
    assert len(receiver.by_name()) == len(receiver.spans()) == 6


def test_a_server_that_forks_its_workers_forks_no_thread(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "import threading\n"
        "print(threading.active_count())\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    with tailscope.request('worker'): pass\n"
        "    print(threading.active_count(), tailscope.flush(timeout_s=10), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(threading.active_count())",
        receiver.endpoint,
    )

    assert (done.stdout, done.stderr) == ("1\n3 True\n1\n", "")
    assert [span.name for span in receiver.spans()] == ["worker"]


def test_a_given_instance_id_stays_and_differs_in_children(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        START + "with tailscope.request('parent'): pass\n"
        "pid = os.fork()\n"
        "with tailscope.request('child' if not pid else 'parent again'): pass\n"
        "if pid: os.waitpid(pid, 0)",
        receiver.endpoint,
        OTEL_RESOURCE_ATTRIBUTES="service.instance.id=pod-7,service.version=1.2",
    )

    assert (done.returncode, done.stderr) == (0, "")
    spans = receiver.by_name()
    assert spans["parent"].resource["service.instance.id"] == "pod-7"
    assert spans["parent again"].resource["service.instance.id"] == "pod-7"
    child = spans["child"].resource
    assert (child["service.instance.id"], child["service.version"]) == (
        f"pod-7-{child['process.pid']}",
        "1.2",
    )


def test_a_child_forked_in_the_middle_of_a_call_can_send(receiver: Receiver, run_python: Run) -> None:
    receiver.delay_s = 0.02
    done = run_python(
        "import os, sys, threading, time, tailscope\n"
        "tailscope.init(endpoint=sys.argv[1], flush_interval_s=0.005)\n"
        "stop = threading.Event()\n"
        "def load():\n"
        "    while not stop.wait(0.001):\n"
        "        with tailscope.request('load'): pass\n"
        "thread = threading.Thread(target=load); thread.start()\n"
        "stop.wait(0.2)\n"
        "codes, slowest = [], 0.0\n"
        "for _ in range(15):\n"
        "    start = time.monotonic()\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        with tailscope.request('child'): pass\n"
        "        os._exit(not tailscope.flush(timeout_s=10))\n"
        "    slowest = max(slowest, time.monotonic() - start)\n"
        "    codes.append(os.waitpid(pid, 0)[1])\n"
        "stop.set(); thread.join()\n"
        "print(set(codes), slowest < 5)",
        receiver.endpoint,
    )

    # gRPC may say on stderr that it was busy when the fork came (fork_posix.cc); we would name ourselves.
    assert (done.stdout, "tailscope" in done.stderr) == ("{0} True\n", False), done.stderr
    assert sum(span.name == "child" for span in receiver.spans()) == 15


def test_a_tracer_that_nobody_renews_raises_nothing_in_a_child(run_python: Run) -> None:
    done = run_python(
        """
import os, sys
import tailscope
from opentelemetry import trace
tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
tracers = [trace.get_tracer(str(number)) for number in range(2100)]
with tailscope.request("parent's"):
    pass
recorder = tailscope._runtime.RUNTIME.recorder
with recorder._lock:
    recorder._news()  # each request that begins asks
pid = os.fork()
if not pid:
    with tracers[-1].start_as_current_span("current"):
        tracers[-1].start_span("server", kind=trace.SpanKind.SERVER).end()
    os._exit(0)
print(os.waitpid(pid, 0)[1])
tailscope.shutdown(0)
"""
    )

    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
