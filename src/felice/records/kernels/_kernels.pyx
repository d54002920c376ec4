# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernels, compiled. `plain` and `plain_columns` are the same functions in Python.

Keeps true:  every position is compared with the end of its buffer before a byte is read or written;
             each length is read once into a local, so bytes that change meanwhile cannot bypass a check;
             sums wrap as Java's long does, by unsigned arithmetic.
This file reads and writes single records. `_record_buffer.pxi` fills a batch, `_from_batches.pxi` and
`_to_batches.pxi` hold the columns, `_offset_map.pxi` the log cleaner's map.
A malformed record raises `InvalidRecord` through `grammar.fault`, with the same message as the plain kernels.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from types import MemberDescriptorType

from felice.records.batch import BatchHeader
from felice.records.crc import crc32c
from felice.records.kernels import grammar
from felice.records.kernels.grammar import (
    BinaryBuffers,
    ColumnBuffers,
    EncodedRows,
    HeadersBuffers,
    KeptRecords,
    Scan,
)
from felice.records.record import Record

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    static inline int felice_bits(unsigned long long v) { return 64 - __builtin_clzll(v | 1); }
    #else
    static inline int felice_bits(unsigned long long v) { int n = 1; while (v >>= 1) n++; return n; }
    #endif
    """
    int felice_bits(unsigned long long) noexcept nogil

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t felice_slot(PyObject *descriptor) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    static inline PyObject *felice_new(PyObject *type) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    }
    /* `type` is a subclass of tuple without fields of its own, such as a named tuple. */
    static inline PyObject *felice_new_tuple(PyObject *type, Py_ssize_t size) {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    #if PY_VERSION_HEX >= 0x030E0000
        /* Python 3.14 keeps the hash of a tuple in it. -1 is none; 0, which `tp_alloc` leaves, would be the hash. */
        if (made != NULL)
            ((PyTupleObject *)made)->ob_hash = -1;
    #endif
        return made;
    }
    static inline void felice_set(PyObject *tuple, Py_ssize_t index, PyObject *value) {
        Py_INCREF(value);
        PyTuple_SET_ITEM(tuple, index, value);
    }
    /* Into a slot that is not set. */
    static inline void felice_store(PyObject *object, Py_ssize_t offset, PyObject *value) {
        Py_INCREF(value);
        *(PyObject **)((char *)object + offset) = value;
    }
    """
    Py_ssize_t felice_slot(object)
    object felice_new(PyObject*)
    object felice_new_tuple(PyObject*, Py_ssize_t)
    void felice_set(PyObject*, Py_ssize_t, object)
    void felice_store(PyObject*, Py_ssize_t, object)

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)
    void PyObject_GC_Track(PyObject*)
    int PyObject_GC_IsTracked(PyObject*)

cdef enum:
    VARINT_CUT = 1
    VARINT_LONG = 2
    LENGTH = 3
    ATTRIBUTES = 4
    KEY = 5
    VALUE = 6
    HEADER_COUNT = 7
    HEADER_KEY = 8
    HEADER_VALUE = 9
    SPARE = 10
    NO_MEMORY = 100
    COLUMN_FULL = 101
    RECORD_MIN_BYTES = 7
    HEADER_BYTES = 61
    LENGTH_END = 12
    CRC_FROM = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    CODEC_MAX = 4
    TRANSACTIONAL = 0x10
    RELEASE_GIL_BYTES = 65536  # below, handing the GIL over costs more than the scan

cdef int64_t MILLISECONDS_MAX = INT64_MAX // 1000


cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key      # NULL means null; an empty key points into the record
    int32_t key_size
    const uint8_t* value
    int32_t value_size
    const uint8_t* headers
    int32_t header_count


cdef class View:
    """Holds a buffer while a kernel reads it."""

    cdef Py_buffer buffer
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef bint held

    def __cinit__(self, source):
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.data = <const uint8_t*> self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef inline int64_t wrap_add(int64_t left, int64_t right) noexcept nogil:
    return <int64_t> (<uint64_t> left + <uint64_t> right)


cdef inline int read_varint32(const uint8_t** at, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef const uint8_t* position = at[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if position >= end:
            return VARINT_CUT
        byte = position[0]
        position += 1
        raw |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 32:
            return VARINT_LONG
    out[0] = <int32_t> ((<uint32_t> raw >> 1) ^ (~(<uint32_t> raw & 1) + 1))
    at[0] = position
    return 0


cdef inline int read_varint64(const uint8_t** at, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef const uint8_t* position = at[0]
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if position >= end:
            return VARINT_CUT
        byte = position[0]
        position += 1
        raw |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 64:
            return VARINT_LONG
    out[0] = <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))
    at[0] = position
    return 0


cdef inline int read_bytes(
    const uint8_t** at, const uint8_t* end, const uint8_t** data, int32_t* size, int code
) noexcept nogil:
    """Length-prefixed bytes; a null leaves `data` NULL and the size 0."""
    cdef int32_t length = 0
    cdef int fault = read_varint32(at, end, &length)
    if fault:
        return fault
    if length == -1:
        data[0] = NULL
        size[0] = 0
        return 0
    if length < 0 or length > end - at[0]:
        return code
    data[0] = at[0]
    size[0] = length
    at[0] += length
    return 0


cdef inline int read_record(const uint8_t** at, const uint8_t* end, Fields* fields) noexcept nogil:
    """Reads and checks the record at `at`; moves `at` behind it."""
    cdef int32_t length = 0
    cdef const uint8_t* data
    cdef int32_t size
    cdef int32_t header
    cdef int fault = read_varint32(at, end, &length)
    if fault:
        return fault
    if length < 0 or length > end - at[0]:
        return LENGTH
    end = at[0] + length
    if length == 0:
        return ATTRIBUTES
    at[0] += 1
    fault = read_varint64(at, end, &fields.timestamp_delta)
    if fault:
        return fault
    fault = read_varint32(at, end, &fields.offset_delta)
    if fault:
        return fault
    fault = read_bytes(at, end, &fields.key, &fields.key_size, KEY)
    if fault:
        return fault
    fault = read_bytes(at, end, &fields.value, &fields.value_size, VALUE)
    if fault:
        return fault
    fault = read_varint32(at, end, &fields.header_count)
    if fault:
        return fault
    if fields.header_count < 0:
        return HEADER_COUNT
    fields.headers = at[0]
    for header in range(fields.header_count):
        fault = read_bytes(at, end, &data, &size, HEADER_KEY)
        if fault:
            return fault
        if data == NULL:
            return HEADER_KEY
        fault = read_bytes(at, end, &data, &size, HEADER_VALUE)
        if fault:
            return fault
    if at[0] != end:
        return SPARE
    return 0


cdef inline int check_count(int64_t record_count, Py_ssize_t size) except -1:
    if record_count < 0 or record_count > size // RECORD_MIN_BYTES:
        raise grammar.count_fault(record_count, size)
    return 0


cdef struct Found:
    int64_t max_timestamp
    int32_t delta_of_max
    int64_t min_timestamp
    bint is_sequential
    int64_t first_keyless
    int64_t index
    const uint8_t* end


cdef int scan_records(
    const uint8_t* at, const uint8_t* end, int64_t record_count, int64_t base_timestamp, Found* found
) noexcept nogil:
    cdef Fields fields
    cdef int64_t timestamp
    cdef int64_t index
    cdef int fault
    found.max_timestamp = found.min_timestamp = found.first_keyless = -1
    found.delta_of_max = -1
    found.is_sequential = True
    for index in range(record_count):
        fault = read_record(&at, end, &fields)
        if fault:
            found.index = index
            return fault
        timestamp = wrap_add(base_timestamp, fields.timestamp_delta)
        if timestamp > found.max_timestamp:
            found.max_timestamp = timestamp
            found.delta_of_max = fields.offset_delta
        if timestamp != -1 and (found.min_timestamp == -1 or timestamp < found.min_timestamp):
            found.min_timestamp = timestamp
        if fields.offset_delta != index:
            found.is_sequential = False
        if fields.key == NULL and found.first_keyless < 0:
            found.first_keyless = index
    found.end = at
    return 0


cdef int scan_unlocked(
    const uint8_t* at, const uint8_t* end, int64_t record_count, int64_t base_timestamp, Found* found
):
    """`scan_records`; without the interpreter lock if that is worth it."""
    cdef int fault
    if end - at < RELEASE_GIL_BYTES:
        return scan_records(at, end, record_count, base_timestamp, found)
    with nogil:
        fault = scan_records(at, end, record_count, base_timestamp, found)
    return fault


def scan(payload, int64_t record_count, int64_t base_timestamp):
    """Checks every record of a batch and collects the facts that produce validation needs."""
    cdef View view = View(payload)
    cdef Found found
    cdef int fault
    check_count(record_count, view.size)
    fault = scan_unlocked(view.data, view.data + view.size, record_count, base_timestamp, &found)
    if fault:
        raise grammar.fault(fault, found.index)
    if found.end != view.data + view.size:
        raise grammar.trailing_fault(record_count, view.data + view.size - found.end)
    facts = (
        found.max_timestamp,
        found.delta_of_max,
        found.min_timestamp,
        bool(found.is_sequential),
        found.first_keyless,
    )
    # Without the constructor of the named tuple, which is a Python function.
    return make_tuple(Scan, facts)


cdef inline int64_t big_endian(const uint8_t* at, int width) noexcept nogil:
    cdef uint64_t value = 0
    cdef int index
    for index in range(width):
        value = value << 8 | at[index]
    return <int64_t> (value << (64 - 8 * width)) >> (64 - 8 * width)


cdef object checked_header(records, const Py_buffer* buffer, int64_t max_bytes):
    """The header of the one produced batch in `records`, or None if anything but its records could be wrong."""
    cdef const uint8_t* at = <const uint8_t*> buffer.buf
    cdef int64_t attributes
    cdef int64_t producer_id
    cdef int64_t base_sequence
    cdef int64_t count
    cdef uint32_t crc
    if buffer.len < HEADER_BYTES or buffer.len > max_bytes:
        return None
    attributes = big_endian(at + 21, 2)
    producer_id = big_endian(at + 43, 8)
    base_sequence = big_endian(at + 53, 4)
    count = big_endian(at + 57, 4)
    if (
        big_endian(at, 8) != 0
        or big_endian(at + 8, 4) + LENGTH_END != buffer.len
        or at[16] != MAGIC
        or attributes & ~(TRANSACTIONAL | CODEC_MASK)
        or attributes & CODEC_MASK > CODEC_MAX
        or count <= 0
        or big_endian(at + 23, 4) + 1 != count
        or (producer_id >= 0 and base_sequence < 0)
    ):
        return None
    crc = <uint32_t> big_endian(at + 17, 4)
    if crc32c(memoryview(records)[CRC_FROM:]) != crc:
        return None
    header = (
        0,
        buffer.len,
        big_endian(at + 12, 4),
        MAGIC,
        crc,
        attributes,
        count - 1,
        big_endian(at + 27, 8),
        big_endian(at + 35, 8),
        producer_id,
        big_endian(at + 51, 2),
        base_sequence,
        count,
        0,
    )
    return make_tuple(BatchHeader, header)


def right_header(records, int64_t max_bytes):
    """The header of a produced batch, compressed or not, if the header and the CRC are right.

    None for a batch that is wrong, and for batches that only `records.validate` can judge. Says nothing of the records.
    """
    cdef Py_buffer buffer
    PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
    try:
        return None if buffer.readonly else checked_header(records, &buffer, max_bytes)
    finally:
        PyBuffer_Release(&buffer)


cdef int64_t delta_of_newest(
    const uint8_t* at,
    const uint8_t* end,
    const uint8_t* header,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    bint is_compacted,
):
    """The offset delta of the newest record between `at` and `end`, if the records may be stored as they are, or -1."""
    cdef int64_t latest = INT64_MAX if after_max_ms > INT64_MAX - now_ms else now_ms + after_max_ms
    cdef int64_t count = big_endian(header + 57, 4)
    cdef int64_t max_timestamp = big_endian(header + 35, 8)
    cdef Found found
    if (
        count > (end - at) // RECORD_MIN_BYTES
        or scan_unlocked(at, end, count, big_endian(header + 27, 8), &found)
        or found.end != end
        or not found.is_sequential
        or (is_compacted and found.first_keyless >= 0)
        or found.max_timestamp != max_timestamp
        or found.min_timestamp < now_ms - before_max_ms
        or max_timestamp > latest
    ):
        return -1
    return found.delta_of_max


def ordinary_records(
    records, payload, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, bint is_compacted
):
    """The offset delta of the newest record, if a batch with a right header may be stored as it is; None otherwise.

    `payload` holds the records of the batch, decompressed. Timestamps may lie `before_max_ms` before `now_ms` and
    `after_max_ms` after it, both up to the largest long.
    """
    cdef View batch = View(records)
    cdef View view = View(payload)
    cdef int64_t delta = -1
    if batch.size >= HEADER_BYTES:
        delta = delta_of_newest(
            view.data, view.data + view.size, batch.data, now_ms, before_max_ms, after_max_ms, is_compacted
        )
    return None if delta < 0 else delta


def ordinary_batch(
    records, int64_t max_bytes, int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, bint is_compacted
):
    """The header of a produced batch, and the offset delta of its newest record, if it may be stored as it is.

    None for any other batch, and for batches that only `records.validate` can judge.
    """
    cdef Py_buffer buffer
    cdef const uint8_t* at
    cdef int64_t delta
    PyObject_GetBuffer(records, &buffer, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*> buffer.buf
        if buffer.readonly or buffer.len < HEADER_BYTES or at[22] & CODEC_MASK:
            return None
        header = checked_header(records, &buffer, max_bytes)
        if header is None:
            return None
        delta = delta_of_newest(
            at + HEADER_BYTES, at + buffer.len, at, now_ms, before_max_ms, after_max_ms, is_compacted
        )
        return None if delta < 0 else (header, delta)
    finally:
        PyBuffer_Release(&buffer)


cdef object make_tuple = tuple.__new__


cdef object optional_bytes(const uint8_t* data, int32_t size):
    return None if data == NULL else PyBytes_FromStringAndSize(<const char*> data, size)


cdef tuple read_headers(const uint8_t* at, const uint8_t* end, int32_t header_count):
    cdef list headers = []
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int32_t header
    for header in range(header_count):
        if read_bytes(&at, end, &key, &key_size, HEADER_KEY) or key == NULL:
            raise AssertionError("header changed while it was read")
        if read_bytes(&at, end, &value, &value_size, HEADER_VALUE):
            raise AssertionError("header changed while it was read")
        name = PyUnicode_DecodeUTF8(<char*> key, key_size, b"replace")
        headers.append((name, optional_bytes(value, value_size)))
    return tuple(headers)


cdef tuple NO_HEADERS = ()
cdef object RECORD = Record


cdef object made_record(Fields* fields, int64_t offset, int64_t timestamp, const uint8_t* end):
    cdef tuple headers = NO_HEADERS
    if fields.header_count:
        headers = read_headers(fields.headers, end, fields.header_count)
    record = felice_new_tuple(<PyObject*> RECORD, 5)
    felice_set(<PyObject*> record, 0, offset)
    felice_set(<PyObject*> record, 1, timestamp)
    felice_set(<PyObject*> record, 2, optional_bytes(fields.key, fields.key_size))
    felice_set(<PyObject*> record, 3, optional_bytes(fields.value, fields.value_size))
    felice_set(<PyObject*> record, 4, headers)
    # A record holds numbers, bytes and tuples of them, so it is part of no cycle. The garbage collector would visit all
    # records of a batch again and again.
    PyObject_GC_UnTrack(<void*> record)
    return record


cdef class RecordWrapper:
    """Makes an object of `kind` for each record. `kind` has the slots `_record`, `_origin` and `_error`.

    The garbage collector does not visit the objects: see `made_record`. Call `track` before one gets other values.
    """

    cdef object kind
    cdef Py_ssize_t record_slot
    cdef Py_ssize_t origin_slot
    cdef Py_ssize_t error_slot

    def __init__(self, kind):
        self.kind = kind
        self.record_slot = slot_of(kind, "_record")
        self.origin_slot = slot_of(kind, "_origin")
        self.error_slot = slot_of(kind, "_error")

    def wrap(
        self,
        payload,
        int64_t record_count,
        int64_t base_offset,
        int64_t base_timestamp,
        append_time_ms,
        int64_t first_offset,
        origin,
    ):
        """The objects of a batch's records from `first_offset` on, each with `origin` and without an error."""
        cdef View view = View(payload)
        cdef const uint8_t* at = view.data
        cdef const uint8_t* end = view.data + view.size
        cdef bint own_time = append_time_ms is None
        cdef int64_t append_time = 0 if own_time else append_time_ms
        cdef int64_t timestamp
        cdef int64_t offset
        cdef int64_t index
        cdef int fault
        cdef Fields fields
        cdef list found = []
        check_count(record_count, view.size)
        for index in range(record_count):
            fault = read_record(&at, end, &fields)
            if fault:
                raise grammar.fault(fault, index)
            offset = wrap_add(base_offset, fields.offset_delta)
            if offset < first_offset:
                continue
            timestamp = wrap_add(base_timestamp, fields.timestamp_delta) if own_time else append_time
            wrapped = felice_new(<PyObject*> self.kind)
            PyObject_GC_UnTrack(<void*> wrapped)
            felice_store(<PyObject*> wrapped, self.record_slot, made_record(&fields, offset, timestamp, at))
            felice_store(<PyObject*> wrapped, self.origin_slot, origin)
            felice_store(<PyObject*> wrapped, self.error_slot, None)
            found.append(wrapped)
        if at != end:
            raise grammar.trailing_fault(record_count, end - at)
        return found


cdef Py_ssize_t slot_of(kind, name) except -1:
    descriptor = vars(kind)[name]
    if not isinstance(descriptor, MemberDescriptorType) or felice_slot(descriptor) < 0:
        raise TypeError(f"{kind!r} has no slot {name}")
    return felice_slot(descriptor)


def track(wrapped):
    """Lets the garbage collector visit an object of `RecordWrapper`, because it may become part of a cycle."""
    if not PyObject_GC_IsTracked(<PyObject*> wrapped):
        PyObject_GC_Track(<PyObject*> wrapped)


def iterate(payload, int64_t record_count, int64_t base_offset, int64_t base_timestamp, append_time_ms):
    """The records of a batch. `append_time_ms` replaces their own timestamps (LogAppendTime batches)."""
    cdef View view = View(payload)
    cdef const uint8_t* at = view.data
    cdef const uint8_t* end = view.data + view.size
    cdef bint own_time = append_time_ms is None
    cdef int64_t append_time = 0 if own_time else append_time_ms
    cdef int64_t timestamp
    cdef int64_t index
    cdef int fault
    cdef Fields fields
    cdef list records = []
    check_count(record_count, view.size)
    for index in range(record_count):
        fault = read_record(&at, end, &fields)
        if fault:
            raise grammar.fault(fault, index)
        timestamp = wrap_add(base_timestamp, fields.timestamp_delta) if own_time else append_time
        records.append(made_record(&fields, wrap_add(base_offset, fields.offset_delta), timestamp, at))
    if at != end:
        raise grammar.trailing_fault(record_count, end - at)
    return records


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t> number << 1) ^ <uint64_t> (number >> 63)


cdef inline Py_ssize_t varint_size(int64_t number) noexcept nogil:
    return (felice_bits(zigzag(number)) + 6) // 7


cdef inline uint8_t* write_varint(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t raw = zigzag(number)
    while raw > 0x7F:
        at[0] = <uint8_t> (raw & 0x7F) | 0x80
        at += 1
        raw >>= 7
    at[0] = <uint8_t> raw
    return at + 1


cdef inline Py_ssize_t bytes_size(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    return 1 if data == NULL else varint_size(size) + size


cdef inline uint8_t* write_bytes(uint8_t* at, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    if data == NULL:
        at[0] = 1  # zig-zag of -1
        return at + 1
    at = write_varint(at, size)
    memcpy(at, data, size)
    return at + size


cdef uint8_t EMPTY = 0


cdef list plain_headers(object headers):
    """Copies headers into pairs of bytes, so that their sizes cannot change while the record is written."""
    cdef list pairs = []
    for name, value in headers:
        key = (<str> name).encode() if isinstance(name, str) else bytes(memoryview(name))
        if value is not None and type(value) is not bytes:
            value = bytes(memoryview(value))
        pairs.append((key, value))
    return pairs


def encode_record(
    bytearray out not None, int32_t offset_delta, int64_t timestamp_delta, key, value, headers=()
):
    """Appends one record to `out` and returns its size in bytes."""
    cdef View key_view = None
    cdef View value_view = None
    cdef const uint8_t* key_data = NULL
    cdef const uint8_t* value_data = NULL
    cdef Py_ssize_t key_size = 0
    cdef Py_ssize_t value_size = 0
    cdef list pairs = None
    cdef Py_ssize_t header_count = 0
    if key is not None:
        if type(key) is bytes:
            key_data = <const uint8_t*> PyBytes_AS_STRING(key)
            key_size = PyBytes_GET_SIZE(key)
        else:
            key_view = View(key)
            key_data = key_view.data if key_view.data != NULL else &EMPTY
            key_size = key_view.size
    if value is not None:
        if type(value) is bytes:
            value_data = <const uint8_t*> PyBytes_AS_STRING(value)
            value_size = PyBytes_GET_SIZE(value)
        else:
            value_view = View(value)
            value_data = value_view.data if value_view.data != NULL else &EMPTY
            value_size = value_view.size
    cdef Py_ssize_t body = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    body += bytes_size(key_data, key_size) + bytes_size(value_data, value_size)
    if headers:
        pairs = plain_headers(headers)
        header_count = len(pairs)
        for name, data in pairs:
            body += varint_size(PyBytes_GET_SIZE(name)) + PyBytes_GET_SIZE(name)
            body += 1 if data is None else varint_size(PyBytes_GET_SIZE(data)) + PyBytes_GET_SIZE(data)
    body += varint_size(header_count)
    if body > INT32_MAX:
        raise OverflowError("a record holds at most 2147483647 bytes")
    cdef Py_ssize_t before = len(out)
    cdef Py_ssize_t taken = varint_size(body) + body
    PyByteArray_Resize(out, before + taken)
    cdef uint8_t* at = <uint8_t*> PyByteArray_AS_STRING(out) + before
    at = write_varint(at, body)
    at[0] = 0
    at = write_varint(at + 1, timestamp_delta)
    at = write_varint(at, offset_delta)
    at = write_bytes(at, key_data, key_size)
    at = write_bytes(at, value_data, value_size)
    at = write_varint(at, header_count)
    if header_count:
        for name, data in pairs:
            at = write_bytes(at, <const uint8_t*> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
            if data is None:
                at = write_bytes(at, NULL, 0)
            else:
                at = write_bytes(at, <const uint8_t*> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return taken


include "_record_buffer.pxi"
include "_from_batches.pxi"
include "_to_batches.pxi"
include "_offset_map.pxi"
