/* Clock, ids and protobuf for the compiled core: what Cython cannot say.
 *
 * Owns the bytes of one span's header and attributes. Never runs Python code while it holds pointers into Python
 * objects: what needs Python was encoded before.
 */
#ifndef TAILSCOPE_CORE_H
#define TAILSCOPE_CORE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* The clock of time.perf_counter_ns, so that times taken here and in Python compare. */
static inline int64_t ts_now_ns(void) {
#ifdef __APPLE__
    return (int64_t)clock_gettime_nsec_np(CLOCK_UPTIME_RAW);
#else
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
#endif
}

/* xoshiro256**: ids of our own, which random.seed() does not touch. Guarded by the GIL. */
static uint64_t ts_state[4];

static inline uint64_t ts_rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline uint64_t ts_random(void) {
    uint64_t result = ts_rotate(ts_state[1] * 5, 7) * 9, t = ts_state[1] << 17;
    ts_state[2] ^= ts_state[0];
    ts_state[3] ^= ts_state[1];
    ts_state[1] ^= ts_state[2];
    ts_state[0] ^= ts_state[3];
    ts_state[2] ^= t;
    ts_state[3] = ts_rotate(ts_state[3], 45);
    return result;
}

static inline void ts_seed(const char *seed) { memcpy(ts_state, seed, sizeof ts_state); }

static inline int ts_varint_size(uint64_t n) {
    int size = 1;
    while (n > 127) { n >>= 7; size++; }
    return size;
}

static inline uint8_t *ts_varint(uint8_t *p, uint64_t n) {
    while (n > 127) { *p++ = (uint8_t)(n | 128); n >>= 7; }
    *p++ = (uint8_t)n;
    return p;
}

/* Fixed-size fields are little-endian on the wire. */
static inline uint8_t *ts_fixed64(uint8_t *p, uint64_t n) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    n = __builtin_bswap64(n);
#endif
    memcpy(p, &n, 8);
    return p + 8;
}

static inline uint8_t *ts_fixed32(uint8_t *p, uint32_t n) {
    for (int i = 0; i < 4; i++) *p++ = (uint8_t)(n >> (8 * i));
    return p;
}

static inline uint8_t *ts_bytes(uint8_t *p, const char *from, Py_ssize_t size) {
    memcpy(p, from, (size_t)size);
    return p + size;
}

/* UTF-8 of a str that is not longer than `max_chars`; 0 where Python has to look: too long, a lone surrogate. */
static inline int ts_text(PyObject *text, Py_ssize_t max_chars, const char **utf8, Py_ssize_t *size) {
    if (PyUnicode_GET_LENGTH(text) > max_chars) return 0;
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        *utf8 = (const char *)PyUnicode_DATA(text);
        *size = PyUnicode_GET_LENGTH(text);
        return 1;
    }
    *utf8 = PyUnicode_AsUTF8AndSize(text, size);
    if (*utf8 == NULL) { PyErr_Clear(); return 0; }
    return 1;
}

enum { TS_TEXT, TS_BOOL, TS_INT, TS_DOUBLE, TS_READY, TS_NONE, TS_ARRAY };

/* One attribute: where its key and value lie, and how the value is written. */
typedef struct {
    const char *key, *text;
    PyObject *items;
    Py_ssize_t key_size, text_size;
    int64_t number;
    int type;
} TsPair;

#define TS_MAX_PAIRS 128

/* Largest that one attribute gets beside its key and text: two tags and lengths on each of three levels. */
#define TS_PAIR_OVERHEAD 40

/* Longest list or tuple that is written here. */
#define TS_MAX_ITEMS 64

/* Size of the AnyValue of one item of a list; -1 where it needs Python. */
static inline Py_ssize_t ts_item_size(PyObject *item, Py_ssize_t max_chars) {
    if (PyUnicode_CheckExact(item)) {
        const char *text;
        Py_ssize_t size;
        if (!ts_text(item, max_chars, &text, &size)) return -1;
        return 1 + ts_varint_size((uint64_t)size) + size;
    }
    if (PyBool_Check(item)) return 2;
    if (PyLong_CheckExact(item)) {
        int overflow;
        int64_t number = PyLong_AsLongLongAndOverflow(item, &overflow);
        return overflow ? -1 : 1 + ts_varint_size((uint64_t)number);
    }
    return PyFloat_CheckExact(item) ? 9 : -1;
}

/* Size of an ArrayValue; -1 where it needs Python. */
static Py_ssize_t ts_items_size(PyObject *items, Py_ssize_t max_chars) {
    Py_ssize_t total = 0;
    if (PySequence_Fast_GET_SIZE(items) > TS_MAX_ITEMS) return -1;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        Py_ssize_t size = ts_item_size(PySequence_Fast_GET_ITEM(items, i), max_chars);
        if (size < 0) return -1;
        total += 1 + ts_varint_size((uint64_t)size) + size;
    }
    return total;
}

static uint8_t *ts_items(uint8_t *p, PyObject *items) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        const char *text = NULL;
        Py_ssize_t size = 0;
        *p++ = 0x0a;
        if (PyUnicode_CheckExact(item)) {
            ts_text(item, PY_SSIZE_T_MAX, &text, &size);  /* has UTF-8: it was measured */
            p = ts_varint(p, (uint64_t)(1 + ts_varint_size((uint64_t)size) + size));
            *p++ = 0x0a;
            p = ts_varint(p, (uint64_t)size);
            p = ts_bytes(p, text, size);
        } else if (PyBool_Check(item)) {
            *p++ = 2; *p++ = 0x10; *p++ = item == Py_True;
        } else if (PyLong_CheckExact(item)) {
            int overflow;
            uint64_t number = (uint64_t)PyLong_AsLongLongAndOverflow(item, &overflow);
            *p++ = (uint8_t)(1 + ts_varint_size(number)); *p++ = 0x18;
            p = ts_varint(p, number);
        } else {
            double number = PyFloat_AS_DOUBLE(item);
            uint64_t bits;
            memcpy(&bits, &number, 8);
            *p++ = 9; *p++ = 0x21;
            p = ts_fixed64(p, bits);
        }
    }
    return p;
}

/* Look at every attribute. The number of them; -1 where one needs Python: an unusual type, a text that is too long.
 * `ready` is the type of values that Python has encoded whole (a tuple with the bytes of the KeyValue field). */
static int ts_gather(PyObject *dict, TsPair *pairs, Py_ssize_t max_pairs, Py_ssize_t max_chars, PyTypeObject *ready,
                     Py_ssize_t *size) {
    Py_ssize_t position = 0, total = 0;
    PyObject *key, *value;
    int count = 0, overflow;
    while (PyDict_Next(dict, &position, &key, &value)) {
        TsPair *pair = pairs + count;
        if (count >= TS_MAX_PAIRS || count >= max_pairs) return -1;
        if (Py_TYPE(value) == ready) {
            PyObject *body = PyTuple_GET_ITEM(value, 0);
            pair->type = TS_READY;
            pair->text = PyBytes_AS_STRING(body);
            pair->text_size = PyBytes_GET_SIZE(body);
            total += pair->text_size;
            count++;
            continue;
        }
        if (!PyUnicode_CheckExact(key) || !ts_text(key, max_chars, &pair->key, &pair->key_size)) return -1;
        if (PyUnicode_CheckExact(value)) {
            pair->type = TS_TEXT;
            if (!ts_text(value, max_chars, &pair->text, &pair->text_size)) return -1;
            total += pair->text_size;
        } else if (PyBool_Check(value)) {
            pair->type = TS_BOOL;
            pair->number = value == Py_True;
        } else if (PyLong_CheckExact(value)) {
            pair->type = TS_INT;
            pair->number = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow) return -1;
        } else if (PyFloat_CheckExact(value)) {
            double number = PyFloat_AS_DOUBLE(value);
            pair->type = TS_DOUBLE;
            memcpy(&pair->number, &number, 8);
        } else if (value == Py_None) {
            pair->type = TS_NONE;
        } else if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) {
            pair->type = TS_ARRAY;
            pair->items = value;
            pair->text_size = ts_items_size(value, max_chars);
            if (pair->text_size < 0) return -1;
            total += pair->text_size;
        } else {
            return -1;
        }
        total += pair->key_size + TS_PAIR_OVERHEAD;
        count++;
    }
    *size += total;
    return count;
}

/* Write a KeyValue as field 9 of a span. */
static inline uint8_t *ts_pair(uint8_t *p, const TsPair *pair) {
    Py_ssize_t any;
    switch (pair->type) {
        case TS_READY: return ts_bytes(p, pair->text, pair->text_size);
        case TS_TEXT:
        case TS_ARRAY: any = 1 + ts_varint_size((uint64_t)pair->text_size) + pair->text_size; break;
        case TS_NONE: any = 0; break;
        case TS_BOOL: any = 2; break;
        case TS_INT: any = 1 + ts_varint_size((uint64_t)pair->number); break;
        default: any = 9;
    }
    *p++ = 0x4a;
    p = ts_varint(p, (uint64_t)(1 + ts_varint_size((uint64_t)pair->key_size) + pair->key_size
                                + 1 + ts_varint_size((uint64_t)any) + any));
    *p++ = 0x0a;
    p = ts_varint(p, (uint64_t)pair->key_size);
    p = ts_bytes(p, pair->key, pair->key_size);
    *p++ = 0x12;
    p = ts_varint(p, (uint64_t)any);
    switch (pair->type) {
        case TS_TEXT:
            *p++ = 0x0a;
            p = ts_varint(p, (uint64_t)pair->text_size);
            return ts_bytes(p, pair->text, pair->text_size);
        case TS_ARRAY:
            *p++ = 0x2a;
            p = ts_varint(p, (uint64_t)pair->text_size);
            return ts_items(p, pair->items);
        case TS_NONE: return p;
        case TS_BOOL:
            *p++ = 0x10;
            *p++ = (uint8_t)pair->number;
            return p;
        case TS_INT:
            *p++ = 0x18;
            return ts_varint(p, (uint64_t)pair->number);
        default:
            *p++ = 0x21;
            return ts_fixed64(p, (uint64_t)pair->number);
    }
}

/* What a span's header is made of. */
typedef struct {
    const char *trace_id;
    uint64_t id, parent_id, start, end;
    uint32_t flags;
    int kind;
} TsHeader;

#define TS_HEADER_SIZE 72

static inline uint8_t *ts_header(uint8_t *p, const TsHeader *header) {
    *p++ = 0x0a; *p++ = 16; p = ts_bytes(p, header->trace_id, 16);
    *p++ = 0x12; *p++ = 8; p = ts_fixed64(p, header->id);
    if (header->parent_id) { *p++ = 0x22; *p++ = 8; p = ts_fixed64(p, header->parent_id); }
    *p++ = 0x30; *p++ = (uint8_t)header->kind;
    *p++ = 0x39; p = ts_fixed64(p, header->start);
    *p++ = 0x41; p = ts_fixed64(p, header->end);
    *p++ = 0x85; *p++ = 1; p = ts_fixed32(p, header->flags);
    return p;
}

/* Close a length-delimited field whose body was written behind room for a two-byte length; its new end. */
static inline uint8_t *ts_close(uint8_t *field, uint8_t *end) {
    uint8_t *body = field + 3;
    size_t size = (size_t)(end - body);
    int width = ts_varint_size(size);
    if (width != 2) {
        memmove(field + 1 + width, body, size);
        end += width - 2;
    }
    ts_varint(field + 1, size);
    return end;
}

#endif
