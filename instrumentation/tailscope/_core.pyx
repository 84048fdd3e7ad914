# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: nonecheck=True, binding=False, always_allow_keywords=True, auto_pickle=False
"""The compiled recording core: a span is a C struct and is OTLP bytes as soon as it ends.

Owns the fast way of a span from start to buffer, in the classes that `_span`, `_stage`, `_request`, `_tracer` and
`_local` have in pure Python, with the same fields and the same behaviour. All that is not on that way is done by
the functions that both cores share (`_record`, `_aside` and what `bind` is given). No object outlives its span: the
garbage collector sees nothing of finished ones. Guarded by the GIL: no Python code runs while bytes are written.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Copy, PyDict_SetItem
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT, PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from opentelemetry import trace as _trace
from opentelemetry.context.context import Context as _Context

from tailscope import _current

cdef extern from "_core.h":
    ctypedef struct TsPair:
        const char* key
        const char* text
        Py_ssize_t key_size, text_size
        int64_t number
        int type
    ctypedef struct TsHeader:
        const char* trace_id
        uint64_t id, parent_id, start, end
        uint32_t flags
        int kind
    ctypedef struct PyTypeObject:
        pass
    const int TS_MAX_PAIRS, TS_HEADER_SIZE, TS_PAIR_OVERHEAD, TS_TEXT, TS_INT
    int64_t ts_now_ns() nogil
    uint64_t ts_random() nogil
    void ts_seed(const char*) nogil
    uint8_t* ts_varint(uint8_t*, uint64_t) nogil
    uint8_t* ts_bytes(uint8_t*, const char*, Py_ssize_t) nogil
    int ts_text(PyObject*, Py_ssize_t, const char**, Py_ssize_t*)
    int ts_gather(PyObject*, TsPair*, Py_ssize_t, Py_ssize_t, PyTypeObject*, Py_ssize_t*)
    uint8_t* ts_pair(uint8_t*, const TsPair*) nogil
    uint8_t* ts_header(uint8_t*, const TsHeader*) nogil
    uint8_t* ts_close(uint8_t*, uint8_t*) nogil

cdef extern from "Python.h":
    int PyContextVar_Get(object var, PyObject* default, PyObject** value) except -1
    object PyContextVar_Set(object var, object value)
    int PyContextVar_Reset(object var, object token) except -1
    PyObject* PyDict_GetItemWithError(object, object) except? NULL
    PyObject* PyDict_GetItem(object, object)
    bint PyDict_CheckExact(object)
    Py_ssize_t PyDict_GET_SIZE(object)
    bint PyUnicode_CheckExact(object)
    bint PyLong_CheckExact(object)
    bint PyFloat_CheckExact(object)
    bint PyBool_Check(object)
    bint PyBytes_CheckExact(object)
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1

cdef enum:
    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    RECORDING = 0
    NOT_STARTED = -2
    CHUNK_BYTES = 65536
    SMALL_CHUNK_BYTES = 4096
    HAS_IS_REMOTE = 0x100
    IS_REMOTE = 0x200

INTERFACE = 1  # the same as in _cores.py; raise both when what the modules expect of each other changes

cdef object SPAN_KEY = _current.SPAN_KEY
cdef object Context = _Context
cdef object VARIABLE = getattr(_current, "variable", None)
"""The context variable behind OpenTelemetry's context; None where another runtime context is configured."""

# What `bind` is given: the functions and objects of the modules that import this one.
cdef object begin_shared, beneath_shared, aside, Aside, stage_shared, copy_dependency, view, decorate_with_span
cdef object request_start, request_copy, begin_span, current_span_left, record, open_request
cdef object FLAGS_OF_OWN_TRACE, DEFAULT_TRACE_STATE, Ready, STAGE_ATTRIBUTE, CHANGING, snapshot
cdef dict stage_names = {}

# What changes rarely and is read with each request: pushed here by its owner, because asking costs 50 ns each.
cdef int64_t anchor_ns = 0
cdef int64_t pause_count = 0
cdef object begin_hook = None
cdef object end_hook = None
cdef uint32_t own_flags = 0
cdef Arrivals counting = None
cdef object hook_failed = None
cdef object SERVER_INFLIGHT = None
cdef object COLD_START = None
cdef object MODEL_VERSION = None

cdef bint plain_stages = True

cdef Scope fast_scope = None
cdef Scope root_scope = None
cdef object fake_clock = None
cdef object fake_bits = None


def bind(**given):
    """Take the functions and objects that the other modules of the core share with this one."""
    global begin_shared, beneath_shared, aside, Aside, stage_shared, copy_dependency, view, decorate_with_span
    global request_start, request_copy, begin_span, current_span_left, record, open_request, own_flags
    global SERVER_INFLIGHT, COLD_START, MODEL_VERSION
    global FLAGS_OF_OWN_TRACE, DEFAULT_TRACE_STATE, Ready, STAGE_ATTRIBUTE, stage_names, CHANGING, snapshot
    begin_shared = given.get("begin", begin_shared)
    beneath_shared = given.get("beneath", beneath_shared)
    aside = given.get("aside", aside)
    Aside = given.get("aside_type", Aside)
    stage_shared = given.get("stage", stage_shared)
    copy_dependency = given.get("copy_dependency", copy_dependency)
    view = given.get("view", view)
    decorate_with_span = given.get("decorate_with_span", decorate_with_span)
    request_start = given.get("request_start", request_start)
    request_copy = given.get("request_copy", request_copy)
    begin_span = given.get("begin_span", begin_span)
    current_span_left = given.get("current_span_left", current_span_left)
    record = given.get("record", record)
    open_request = given.get("open_request", open_request)
    SERVER_INFLIGHT = given.get("server_inflight", SERVER_INFLIGHT)
    COLD_START = given.get("cold_start", COLD_START)
    MODEL_VERSION = given.get("model_version", MODEL_VERSION)
    FLAGS_OF_OWN_TRACE = given.get("flags_of_own_trace", FLAGS_OF_OWN_TRACE)
    own_flags = FLAGS_OF_OWN_TRACE or 0
    DEFAULT_TRACE_STATE = given.get("default_trace_state", DEFAULT_TRACE_STATE)
    Ready = given.get("ready", Ready)
    STAGE_ATTRIBUTE = given.get("stage_attribute", STAGE_ATTRIBUTE)
    stage_names = given.get("stage_names", stage_names)
    CHANGING = given.get("changing", CHANGING)
    snapshot = given.get("snapshot", snapshot)


def set_anchor(int64_t offset_ns):
    """Place monotonic times on the wall clock from now on; requests in flight keep the anchor they have."""
    global anchor_ns
    anchor_ns = offset_ns


def set_pauses(int64_t count):
    """Say how many long garbage collections there have been."""
    global pause_count
    pause_count = count


def set_hooks(begin, end):
    """Call these at each start and end of a request; None where nobody listens."""
    global begin_hook, end_hook
    begin_hook, end_hook = begin, end


def set_arrivals(Arrivals arrivals, failed):
    """Count and measure requests with `arrivals`; None where that is off. What it raises goes to `failed`."""
    global counting, hook_failed
    counting, hook_failed = arrivals, failed


def set_plain_stages(bint wanted):
    """Make plain stages here, or let the shared function make others."""
    global plain_stages
    plain_stages = wanted


def activate(Scope fast, Scope root):
    """Record stages beneath ours in `fast`, and requests with nothing above them in `root`, without asking."""
    global fast_scope, root_scope
    fast_scope, root_scope = fast, root


def use_clock(clock):
    """Read monotonic nanoseconds from `clock`, or from the system where it is None."""
    global fake_clock
    fake_clock = clock


def use_ids(bits):
    """Take ids from `bits(how_many)`, or from our own generator where it is None."""
    global fake_bits
    fake_bits = bits


def reseed():
    """Begin with new random ids, as a forked child has to."""
    ts_seed(PyBytes_AS_STRING(os.urandom(32)))


reseed()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reseed)


cdef inline int64_t now() except -1:
    return ts_now_ns() if fake_clock is None else fake_clock()


cdef inline uint64_t new_id() except? 0:
    return ts_random() if fake_bits is None else fake_bits(64)


cdef inline object current_context():
    cdef PyObject* value = NULL
    if VARIABLE is None:
        return _current.get_current()
    PyContextVar_Get(VARIABLE, NULL, &value)
    context = <object>value
    Py_DECREF(context)
    return context


cdef inline object make_current(object context):
    return _current.attach(context) if VARIABLE is None else PyContextVar_Set(VARIABLE, context)


cdef object context_with(object outer, object span):
    """Return the context in which `span` is current; the usual one holds nothing else."""
    if PyDict_GET_SIZE(outer) > 1 or (PyDict_GET_SIZE(outer) == 1 and PyDict_GetItemWithError(outer, SPAN_KEY) == NULL):
        context = Context(outer)
    else:
        context = Context()
    PyDict_SetItem(context, SPAN_KEY, span)
    return context


cdef inline bint plain(object value):
    """Say whether an attribute's value is immutable and written as it is."""
    return (
        PyUnicode_CheckExact(value)
        or PyLong_CheckExact(value)
        or PyFloat_CheckExact(value)
        or PyBool_Check(value)
        or value is None
        or PyBytes_CheckExact(value)
    )


cdef object own(object attributes):
    """Return a copy of attributes, with a snapshot of each value that may change later."""
    cdef dict copied = PyDict_Copy(attributes)
    for key, value in copied.items():
        if not plain(value) and type(value) in CHANGING:
            PyDict_SetItem(copied, key, snapshot(value))
    return copied


@cython.no_gc_clear  # a collection that finds it with its span clears the span, and `__dealloc__` still counts
cdef class LocalTrace:
    """The part of a trace that one process adds to one request; shared by its spans."""

    cdef public bytes trace_id
    cdef public object flags
    cdef public object state
    cdef public object server
    cdef public object mark
    cdef public object failure
    cdef Arrivals arrivals
    """Who counts the request as in flight; None once it is not."""
    cdef object measured
    cdef int64_t arrived_after, compiled
    cdef uint64_t told
    """The id of the span that is to say how many were in flight; 0 for none."""
    cdef public uint64_t remote_parent_id
    cdef public int64_t anchor_ns
    cdef public int64_t gc_mark
    cdef public uint32_t otlp_flags
    cdef public bint dropped

    def beneath(self):
        """Return the part that begins with a SERVER span inside this one."""
        return beneath_shared(self)

    def __dealloc__(self):
        if self.arrivals is not None:  # a span that nobody ended
            self.arrivals.in_flight -= 1


cdef class Arrivals:
    """Requests that arrive and depart: how many are in flight, and which of them are measured."""

    cdef public object measure, measured, cold, compilations
    cdef public dict known
    cdef public int64_t every_ns, next_ns, compiled, in_flight, most

    def __cinit__(self, *functions):
        self.known = {}


cdef int arrive(Arrivals arrivals, LocalTrace local) except -1:
    """Count a request that starts here, and measure it if that is due."""
    cdef int64_t at_ns
    local.arrivals = arrivals
    local.arrived_after = arrivals.in_flight
    arrivals.in_flight += 1
    if arrivals.in_flight > arrivals.most:
        arrivals.most = arrivals.in_flight
    local.compiled = arrivals.compiled
    at_ns = now()
    if at_ns >= arrivals.next_ns:
        arrivals.next_ns = at_ns + arrivals.every_ns
        try:
            local.measured = arrivals.measure()
        except Exception as error:
            hook_failed("begin", error)
    return 0


cdef int depart(Span span, LocalTrace local, int64_t end_ns) except -1:
    """Write what is known of a request into its span, which has not been handed over yet."""
    cdef Arrivals arrivals = local.arrivals
    cdef PyObject* first
    local.arrivals = None
    arrivals.in_flight -= 1
    try:
        attributes = span._attributes
        if span._scope.plugs is None:
            local.told = span._id  # written with the span: an attribute costs five times as much
        else:
            if attributes is None:
                attributes = span._attributes = {}
            attributes[SERVER_INFLIGHT] = local.arrived_after
        first = PyDict_GetItemWithError(arrivals.known, span._name)
        if (
            first == NULL or span._start_ns < <int64_t>(<object>first)
            or (attributes is not None and PyDict_GetItem(attributes, MODEL_VERSION) != NULL)
        ):
            if attributes is None:
                attributes = span._attributes = {}
            if arrivals.cold(span, attributes, end_ns):
                attributes[COLD_START] = True
        if local.measured is not None:
            measured, local.measured = local.measured, None
            if span._attributes is None:
                span._attributes = {}
            arrivals.measured(span, measured, end_ns)
        if local.compiled != arrivals.compiled:
            arrivals.compilations(span, end_ns)
    except Exception as error:
        hook_failed("end", error)
    return 0


cdef int begin_serving(Span span) except -1:
    """Make a span the server span of its local trace: from now on the process is busy with a request."""
    cdef LocalTrace local = span._local
    local.server = span
    local.gc_mark = pause_count
    if counting is not None:
        arrive(counting, local)
    if begin_hook is not None:
        local.mark = begin_hook()
    if span._scope.crowded():
        span._scope.recorder.arrive(span)
    return 0


def serve(Span span):
    """Make a span the server span of its local trace."""
    begin_serving(span)


cdef LocalTrace own_trace():
    """Begin a trace that nobody upstream has begun."""
    cdef LocalTrace local = LocalTrace.__new__(LocalTrace)
    cdef uint64_t halves[2]
    if fake_bits is None:
        halves[0] = ts_random() | 1  # a trace id is never zero
        halves[1] = ts_random()
        local.trace_id = PyBytes_FromStringAndSize(<char*>halves, 16)
    else:
        local.trace_id = fake_bits(128).to_bytes(16, "little")
    local.flags = FLAGS_OF_OWN_TRACE
    local.otlp_flags = HAS_IS_REMOTE | own_flags
    local.state = DEFAULT_TRACE_STATE
    local.anchor_ns = anchor_ns
    return local


cdef class Budget:
    """The bytes of one recorder: held from a span's end until the collector has it, and what found no room."""

    cdef public int64_t held_bytes
    cdef public int64_t limit_bytes
    cdef public int64_t crowd_bytes
    cdef public int64_t recorded
    cdef public int64_t waiting
    cdef public int64_t max_span_bytes

    def released(self, int64_t size):
        """Give back the bytes of what was sent or given up."""
        self.held_bytes -= size


cdef class Scope:
    """One instrumentation scope: its encoded name, its limits, and the chunk its spans are written to."""

    cdef public object recorder
    cdef public object plugs
    cdef public object encoder
    cdef public bytes encoded
    cdef public tuple names
    cdef public Budget budget
    cdef public Py_ssize_t max_attributes, max_events, max_links, max_value_chars
    cdef public bint direct
    """Spans are written here without asking the recorder."""
    cdef PyObject* chunk
    cdef Py_ssize_t used, size
    cdef list closed
    """Chunks that are full, and after each the number of its spans."""
    cdef int64_t chunk_spans

    def __cinit__(self):
        self.closed = []

    def __dealloc__(self):
        if self.chunk != NULL:
            Py_DECREF(<object>self.chunk)

    cpdef bint crowded(self):
        """Say whether the recorder has something to say to a request that begins."""
        return self.recorder is not None and self.budget.held_bytes >= self.budget.crowd_bytes

    def full(self, span):
        """Take a span that the buffer does not take by itself."""
        if self.recorder is not None:
            self.recorder.full(span)

    def retire(self):
        """Take no more spans: those that began before a fork are their parent's to send."""
        self.recorder = None
        self.direct = False

    def write(self, Span span):
        """Write an ended span to the chunk."""
        write(self, span)

    def take(self):
        """Return what was written since the last time: a list of (bytes, spans)."""
        self.change(NULL, 0)
        closed, self.closed = self.closed, []
        chunks = list(zip(closed[::2], closed[1::2]))
        for _, spans in chunks:
            self.budget.waiting -= spans
        return chunks

    cdef int change(self, PyObject* fresh, Py_ssize_t size) except -1:
        """Go on in another chunk, or none, and keep the one before."""
        cdef PyObject* old = self.chunk
        cdef Py_ssize_t used = self.used
        cdef int64_t spans = self.chunk_spans
        self.chunk, self.size, self.used, self.chunk_spans = fresh, size, 0, 0
        if old != NULL:
            if used:
                _PyBytes_Resize(&old, used)
                # One after the other and in no tuple: making one may start a collection, and what that runs may
                # change a list whose size was taken already.
                self.closed.append(<object>old)
                self.closed.append(spans)
            Py_DECREF(<object>old)
        return 0

    cdef uint8_t* room(self, Py_ssize_t wanted) except NULL:
        """Return where `wanted` bytes may be written. A busy scope gets large chunks, one that is seldom used small."""
        cdef Py_ssize_t size
        while self.used + wanted > self.size:
            size = CHUNK_BYTES if self.used else SMALL_CHUNK_BYTES
            if wanted > size:
                size = wanted
            fresh = PyBytes_FromStringAndSize(NULL, size)
            Py_INCREF(fresh)
            self.change(<PyObject*>fresh, size)
            fresh = None
        return <uint8_t*>PyBytes_AS_STRING(<object>self.chunk) + self.used


cdef int hand_over(Span span) except -1:
    """Write an ended span to its scope's chunk, or give it to the recorder where that has to look."""
    cdef Scope scope = span._scope
    if scope is None or span._local is None:  # never begun
        return 0
    if not scope.direct or span._local.dropped or scope.budget.held_bytes >= scope.budget.limit_bytes:
        scope.full(span)
        return 0
    return write(scope, span)


cdef int end_span(Span span) except -1:
    """End a span that records now, and hand it over."""
    cdef LocalTrace local = span._local
    cdef int64_t end_ns = now()
    if local.server is span:
        local.server = None  # of two threads that end it, one does this
        if local.arrivals is not None:
            depart(span, local, end_ns)
        if local.gc_mark != pause_count or end_hook is not None:
            record.serve_ends(span, end_ns)
        if span._end_ns:  # by another thread, while Python code ran
            return 0
    span._end_ns = end_ns
    return hand_over(span)


cdef int write(Scope scope, Span span) except -1:
    """Encode a span; an odd one takes neither its neighbours nor the host along."""
    try:
        encode(scope, span)
    except BaseException as error:
        if scope.recorder is not None:
            scope.recorder.unencodable(span, error)
        if isinstance(error, (KeyboardInterrupt, SystemExit)):  # Ctrl-C or SIGTERM, while Python code ran
            raise
    return 0


cdef int encode(Scope scope, Span span) except -1:
    """Write a span as a `ScopeSpans.spans` entry."""
    cdef TsPair pairs[128]
    cdef TsPair stage
    cdef TsPair inflight
    cdef TsHeader header
    cdef LocalTrace local = span._local
    cdef Py_ssize_t size = TS_HEADER_SIZE + 16
    cdef Py_ssize_t name_size = 0
    cdef Py_ssize_t written
    cdef int count = 0
    cdef const char* name = NULL
    cdef bytes rare = None
    cdef bytes odd_name = None
    cdef bytes odd_stage = None
    cdef uint8_t* start
    cdef uint8_t* p
    cdef object attributes = span._attributes
    cdef Py_ssize_t given = 0
    # First all that may run Python: then pointers into objects are taken, and nothing runs until they are used.
    cdef bint stateful = local.state is not DEFAULT_TRACE_STATE and bool(local.state)
    cdef bint staged = span._stage is not None
    if attributes is not None:
        if not PyDict_CheckExact(attributes):
            attributes = span._attributes = dict(attributes)
        given = PyDict_GET_SIZE(attributes)
        staged = staged and PyDict_GetItem(attributes, STAGE_ATTRIBUTE) == NULL
        count = ts_gather(<PyObject*>attributes, pairs, scope.max_attributes, scope.max_value_chars,
                          <PyTypeObject*>Ready, &size)
        if count < 0:
            attributes = scope.encoder.made_ready(attributes)
    if span._extra is not None or stateful or given > scope.max_attributes:
        rare = scope.encoder.rare(span)
        size += PyBytes_GET_SIZE(rare)
    if not (PyUnicode_CheckExact(span._name) and ts_text(<PyObject*>span._name, scope.max_value_chars, &name, &name_size)):
        odd_name = scope.encoder.name(span._name)
        name_size = PyBytes_GET_SIZE(odd_name)
    stage.type = TS_TEXT
    if staged and not (
        PyUnicode_CheckExact(span._stage)
        and ts_text(<PyObject*>span._stage, scope.max_value_chars, &stage.text, &stage.text_size)
    ):
        odd_stage = scope.encoder.stage(span._stage)
        size += PyBytes_GET_SIZE(odd_stage)
    elif staged and ts_text(<PyObject*>STAGE_ATTRIBUTE, 64, &stage.key, &stage.key_size):
        size += stage.key_size + stage.text_size + TS_PAIR_OVERHEAD
    inflight.type = -1
    if local.told == span._id and local.told and (
        attributes is None or PyDict_GetItem(span._attributes, SERVER_INFLIGHT) == NULL
    ) and ts_text(<PyObject*>SERVER_INFLIGHT, 64, &inflight.key, &inflight.key_size):
        inflight.type, inflight.number = TS_INT, local.arrived_after
        size += inflight.key_size + TS_PAIR_OVERHEAD
    size += name_size + 8
    header.start = <uint64_t>(span._start_ns + local.anchor_ns)
    header.end = <uint64_t>(span._end_ns + local.anchor_ns)
    if rare is not None and span._extra is not None and span._extra.end_unix_nano:
        header.end = <uint64_t>(span._extra.end_unix_nano & 0xFFFFFFFFFFFFFFFF)
    if count < 0 or (
        attributes is not None and (rare is not None or odd_name is not None or odd_stage is not None)
    ):
        count = ts_gather(<PyObject*>attributes, pairs, TS_MAX_PAIRS, scope.max_value_chars,
                          <PyTypeObject*>Ready, &size)
        if count < 0:
            raise ValueError("attributes changed while they were encoded")
    header.trace_id = PyBytes_AS_STRING(local.trace_id)
    header.id = span._id
    header.parent_id = span._parent_id
    header.kind = span._kind
    header.flags = local.otlp_flags
    if span._parent_id and span._parent_id == local.remote_parent_id:
        header.flags |= IS_REMOTE
    start = scope.room(size)
    start[0] = 0x12
    p = ts_header(start + 3, &header)
    if odd_name is not None:
        p = ts_bytes(p, PyBytes_AS_STRING(odd_name), name_size)
    else:
        p[0] = 0x2a
        p = ts_varint(p + 1, <uint64_t>name_size)
        p = ts_bytes(p, name, name_size)
    if odd_stage is not None:
        p = ts_bytes(p, PyBytes_AS_STRING(odd_stage), PyBytes_GET_SIZE(odd_stage))
    elif staged:
        p = ts_pair(p, &stage)
    for index in range(count):
        p = ts_pair(p, &pairs[index])
    if inflight.type == TS_INT:
        p = ts_pair(p, &inflight)
    if rare is not None:
        p = ts_bytes(p, PyBytes_AS_STRING(rare), PyBytes_GET_SIZE(rare))
    written = ts_close(start, p) - start
    if written > scope.budget.max_span_bytes:
        scope.recorder.too_large(span, written)
        return 0
    scope.used += written
    scope.chunk_spans += 1
    scope.budget.held_bytes += written
    scope.budget.waiting += 1
    scope.budget.recorded += 1
    return 0


@cython.freelist(64)
cdef class Span:
    """OpenTelemetry's span, with `set` and `event` of our own API beside its methods."""

    cdef object __weakref__
    cdef dict __dict__
    cdef public object _name
    cdef public object _stage
    cdef public object _attributes
    cdef public LocalTrace _local
    cdef public Scope _scope
    cdef public object _context
    cdef public object _extra
    cdef public object _token
    cdef public object _foreign
    cdef public object _other
    cdef public int64_t _start_ns
    cdef public int64_t _end_ns
    cdef public uint64_t _id
    cdef public uint64_t _parent_id
    cdef public int _held
    cdef public int _kind

    def __cinit__(self):
        self._kind = INTERNAL
        self._end_ns = NOT_STARTED

    def _begin(self, parent, scope):
        """Take an identity beneath `parent` and start; False where the trace is not sampled."""
        return begin_shared(self, parent, scope)

    def _more(self):
        """Return the rare part, which begins here."""
        return record.more(self)

    def _fail(self, error):
        """Mark the span as failed by an exception that leaves it."""
        record.fail(self, error)

    def _stands_for(self):
        """Return the span that records in place of this one, which does not; None where there is none."""
        return self._other

    def _hand_over(self):
        """Give the ended span to its buffer, or to its recorder where the buffer does not take it."""
        hand_over(self)

    cpdef set_attribute(self, key, value):
        """Set one attribute; the newest are dropped and counted beyond the limit."""
        if self._end_ns:
            return
        attributes = self._attributes
        if not PyUnicode_CheckExact(key) or not plain(value):
            record.set_odd(self, key, value)
        elif attributes is None:
            self._attributes = {key: value}
        elif PyDict_CheckExact(attributes) and PyDict_GET_SIZE(attributes) < self._scope.max_attributes:
            PyDict_SetItem(attributes, key, value)
        else:
            record.set_odd(self, key, value)

    def set(self, key, value):
        """Set one attribute."""
        self.set_attribute(key, value)

    def set_attributes(self, attributes):
        """Set several attributes."""
        record.set_attributes(self, attributes)

    def add_event(self, name, attributes=None, timestamp=None):
        """Add an event at `timestamp` (Unix ns), or now."""
        record.add_event(self, name, attributes, timestamp)

    def event(self, name, attributes=None):
        """Add an event that happens now."""
        self.add_event(name, attributes)

    def add_link(self, context, attributes=None):
        """Link to another span; an invalid one counts only with attributes or a trace state."""
        record.add_link(self, context, attributes)

    def set_status(self, status, description=None):
        """Set the status; OK is final, UNSET is ignored."""
        record.set_status(self, status, description)

    def record_exception(self, exception, attributes=None, timestamp=None, escaped=False):
        """Add an `exception` event with type, message and stack trace."""
        record.record_exception(self, exception, attributes, timestamp, escaped)

    def update_name(self, name):
        """Give the span another name."""
        if not self._end_ns:
            self._name = name

    def is_recording(self):
        """Say whether the span still takes attributes and events."""
        return self._end_ns == RECORDING

    def get_span_context(self):
        """Return the span's identity."""
        return record.get_span_context(self)

    def end(self, end_time=None):
        """End the span now or at `end_time` (Unix ns) and hand it over; only the first call counts."""
        if not self._end_ns:
            if end_time is not None:
                record.more(self).end_unix_nano = record.unix_ns(end_time) or 0
            end_span(self)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc, tb):
        if exc is not None and not self._end_ns:
            self.record_exception(exc, escaped=True)
            self.set_status(ERROR, record.describe(exc))
        self.end()

    def __getattr__(self, name):
        return view(self, name)

    @property
    def context(self):
        """The span's identity, under the SDK's name for it."""
        return self.get_span_context()

    @property
    def parent(self):
        """The identity of the parent; None for a root."""
        return record.parent_of(self)

    @property
    def name(self):
        """The operation."""
        return self._name

    @property
    def kind(self):
        """The kind, which instrumentation of ASGI servers asks for."""
        return record.KINDS[self._kind]

    @property
    def attributes(self):
        """A copy of the attributes set so far."""
        return dict(self._attributes or {})


cdef int leave(object token, Span span, object error) except -1:
    """Make the context before `token` current again."""
    if error is not None or VARIABLE is None:
        _current.leave(token, span, error)
        return 0
    try:
        PyContextVar_Reset(VARIABLE, token)
    except _current.LEFT_ELSEWHERE:
        _current.leave(token, span)
    return 0


cdef class Stage(Span):
    """One stage of a request: `with stage("inference") as s`, `async with`, or a decorator."""

    def __enter__(self):
        cdef PyObject* found
        cdef Span parent
        if fast_scope is None or self._end_ns != NOT_STARTED:
            return aside.enter_aside(self)
        context = current_context()
        found = PyDict_GetItemWithError(context, SPAN_KEY)
        if found == NULL or not isinstance(<object>found, Span):
            return aside.enter_aside(self)
        parent = <Span>found
        if parent._local is None:
            return aside.enter_aside(self)
        self._local = parent._local
        self._parent_id = parent._id
        self._scope = fast_scope
        self._id = new_id()
        self._end_ns = RECORDING
        self._token = make_current(context_with(context, self))
        self._start_ns = now()
        return self

    def __exit__(self, exc_type, exc, tb):
        token = self._token
        if type(token) is Aside:
            aside.exit_aside(self, token, exc)
            return
        leave(token, self, exc)
        if exc is not None:
            self._fail(exc)
        self._token = None
        if not self._end_ns:
            self._end_ns = now()
            hand_over(self)

    def __call__(self, function):
        """Wrap a function, coroutine function, generator or async generator: each call is a stage."""
        return aside.decorate(self, function)

    def __aenter__(self):
        return aside.aenter(self)

    def __aexit__(self, exc_type, exc, tb):
        return aside.aexit(self, exc_type, exc, tb)

    def _enter_aside(self):
        """Enter off the fast path."""
        return aside.enter_aside(self)

    def _exit_aside(self, token, error):
        """Leave what `_enter_aside` entered."""
        aside.exit_aside(self, token, error)

    def _start(self, context):
        """Start beneath the context's span without becoming current; return the body's context, if any."""
        return aside.start(self, context)

    def _finish(self, error):
        """End a stage that `_start` started."""
        aside.finish(self, error)

    def _discard(self):
        """Leave as if never entered."""
        aside.discard(self)

    def _copy(self):
        """Return a fresh stage like this one, for one call of a decorated function."""
        return stage(self._name, attributes=self._attributes)

    cpdef set_attribute(self, key, value):
        """Set one attribute; before the stage is entered, one it will start with."""
        if self._end_ns:
            aside.set_aside(self, key, value)
        else:
            Span.set_attribute(self, key, value)

    def add_event(self, name, attributes=None, timestamp=None):
        """Add an event at `timestamp` (Unix ns), or now."""
        aside.add_event(self, name, attributes, timestamp)

    def add_link(self, context, attributes=None):
        """Link to another span."""
        aside.add_link(self, context, attributes)

    def set_status(self, status, description=None):
        """Set the status; OK is final."""
        aside.set_status(self, status, description)

    def record_exception(self, exception, attributes=None, timestamp=None, escaped=False):
        """Add an `exception` event with type, message and stack trace."""
        aside.record_exception(self, exception, attributes, timestamp, escaped)

    def update_name(self, name):
        """Give the span another name."""
        aside.update_name(self, name)

    def is_recording(self):
        """Say whether the stage still takes attributes and events."""
        return aside.is_recording(self)

    def get_span_context(self):
        """Return the identity of the span that records."""
        return aside.get_span_context(self)


cdef class Dependency(Stage):
    """A call to something else: a CLIENT span with the peer's name."""

    def __cinit__(self):
        self._kind = CLIENT

    def _copy(self):
        """Return a fresh dependency like this one, for one call of a decorated function."""
        return copy_dependency(self)


cdef class Request(Stage):
    """One request: `with request("predict") as r`, `async with`, or a decorator."""

    def __cinit__(self):
        self._kind = SERVER

    def __enter__(self):
        cdef LocalTrace local
        context = current_context()
        if root_scope is None or self._end_ns != NOT_STARTED or PyDict_GET_SIZE(context):
            return aside.enter_aside(self)
        # The usual case, nothing upstream and nothing in the context: a trace of our own.
        self._local = local = own_trace()
        self._parent_id = 0
        self._scope = root_scope
        self._id = new_id()
        self._end_ns = RECORDING
        begin_serving(self)
        self._token = make_current(context_with(context, self))
        self._start_ns = now()
        return self

    def __exit__(self, exc_type, exc, tb):
        token = self._token
        if type(token) is Aside:
            aside.exit_aside(self, token, exc)
            return
        leave(token, self, exc)
        self._token = None
        if exc is not None:
            self._fail(exc)
        if not self._end_ns and (exc is not None or not self._held):
            end_span(self)

    def _start(self, context):
        """Start a SERVER span, or stand for the one that the context is already inside of."""
        return request_start(self, context)

    def _copy(self):
        """Return a fresh request like this one, for one call of a decorated function."""
        return request_copy(self)


_trace.Span.register(Span)


def stage(name, *, bint gpu=False, attributes=None):
    """Open a stage of the current request: a context manager, or a decorator."""
    cdef Stage opened
    cdef PyObject* known
    if gpu or not plain_stages or not PyUnicode_CheckExact(name):
        return stage_shared(name, gpu=gpu, attributes=attributes)
    known = PyDict_GetItemWithError(stage_names, name)
    if known == NULL or not (attributes is None or PyDict_CheckExact(attributes)):
        return stage_shared(name, attributes=attributes)
    opened = Stage.__new__(Stage)
    opened._name = name
    opened._stage = <object>known
    if attributes is not None:
        opened._attributes = own(attributes)
    return opened


def request(name="request", *, attributes=None):
    """Open a request as a context manager, or decorate a function whose calls are requests."""
    cdef Request opened
    if not PyUnicode_CheckExact(name) or not (attributes is None or PyDict_CheckExact(attributes)):
        return open_request(name, attributes=attributes)
    opened = Request.__new__(Request)
    opened._name = name
    if attributes is not None:
        opened._attributes = own(attributes)
    return opened


@cython.freelist(16)
cdef class CurrentSpan:
    """What `start_as_current_span` returns: a context manager, and a decorator."""

    cdef Tracer tracer
    cdef object name, context, kind, attributes, links, start_time, span, token
    cdef bint recorded, status_set, end_on_exit

    def __enter__(self):
        cdef Span span
        cdef PyObject* found
        cdef object current = current_context()
        if (
            self.context is None and self.links is None and self.start_time is None
            and fast_scope is not None and self.kind is INTERNAL_KIND and self.tracer._scope.plugs is None
            and (self.attributes is None or PyDict_CheckExact(self.attributes))
        ):
            span = Span.__new__(Span)
            found = PyDict_GetItemWithError(current, SPAN_KEY)
            if found == NULL and root_scope is not None:
                span._local = own_trace()
            elif found != NULL and isinstance(<object>found, Span):
                span._local = (<Span>found)._local
                span._parent_id = (<Span>found)._id
            if span._local is not None:
                span._name = self.name
                span._attributes = None if self.attributes is None else own(self.attributes)
                span._scope = self.tracer._scope
                span._id = new_id()
                span._end_ns = RECORDING
                if found == NULL and span._scope.crowded():
                    span._scope.recorder.arrive(span)
                self.span = span
                self.token = make_current(context_with(current, span))
                span._start_ns = now()
                return span
        self.span = begin_span(
            Span(), self.tracer._scope, self.name, self.context, self.kind, self.attributes, self.links,
            self.start_time,
        )
        self.token = make_current(context_with(current_context(), self.span))
        return self.span

    def __exit__(self, exc_type, exc, tb):
        span, self.span = self.span, None
        token, self.token = self.token, None
        if exc is None and type(span) is Span:
            leave(token, <Span>span, None)
        else:
            _current.leave(token, span, exc)
            current_span_left(span, exc, self.recorded, self.status_set)
        if self.end_on_exit:
            span.end()

    def __call__(self, function):
        """Wrap a function or coroutine function so that each call is a span."""
        return self.tracer.decorate(
            function,
            (self.name, self.context, self.kind, self.attributes, self.links, self.start_time),
            (bool(self.recorded), bool(self.status_set), bool(self.end_on_exit)),
        )


cdef object ERROR = _trace.StatusCode.ERROR
cdef object INTERNAL_KIND = _trace.SpanKind.INTERNAL


cdef class Tracer:
    """Starts spans of one instrumentation scope."""

    cdef object __weakref__
    cdef dict __dict__
    cdef public tuple _names
    cdef public object _attributes
    cdef public object _other
    """Who starts the spans in our place, since the service has set a provider of its own."""
    cdef public Scope _scope

    def __init__(self, recorder, names, attributes):
        self._names, self._attributes = names, attributes
        self.renew(recorder)

    def renew(self, recorder):
        """Take the scope anew from a recorder."""
        self._scope = recorder.scope(*self._names, self._attributes)

    def decorate(self, function, arguments, options):
        """Return a function each call of which is a span."""
        return decorate_with_span(self, function, arguments, options)

    def start_span(
        self, name, context=None, kind=INTERNAL_KIND, attributes=None, links=None, start_time=None,
        record_exception=True, set_status_on_exception=True,
    ):
        """Start a span without making it current."""
        if self._other is not None:
            return self._other.start_span(
                name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
            )
        return begin_span(Span(), self._scope, name, context, kind, attributes, links, start_time)

    def start_as_current_span(
        self, name, context=None, kind=INTERNAL_KIND, attributes=None, links=None, start_time=None,
        record_exception=True, set_status_on_exception=True, end_on_exit=True,
    ):
        """Start a span that is current inside a `with` block."""
        if self._other is not None:
            return self._other.start_as_current_span(
                name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception,
                end_on_exit,
            )
        cdef CurrentSpan opened = CurrentSpan.__new__(CurrentSpan)
        opened.tracer = self
        opened.name = name
        opened.context = context
        opened.kind = kind
        opened.attributes = attributes
        opened.links = links
        opened.start_time = start_time
        opened.recorded = record_exception
        opened.status_set = set_status_on_exception
        opened.end_on_exit = end_on_exit
        return opened


_trace.Tracer.register(Tracer)
