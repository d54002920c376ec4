# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record kernels, compiled. `plain` and `plain_columns` are the same in Python.

Keeps true:  no byte is read or written that was not first compared with the end of its buffer;
             each length is read once into a local, so bytes that change meanwhile cannot outwit a check;
             sums wrap as Java's long does, by unsigned arithmetic.
A malformed record raises `InvalidRecord` through `grammar.fault`, in the words of the plain twin.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from felice.records.kernels import grammar
from felice.records.kernels.grammar import (
    BinaryBuffers,
    ColumnBuffers,
    EncodedRows,
    HeadersBuffers,
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
    RELEASE_GIL_BYTES = 65536  # below, handing the GIL over costs more than the scan

cdef int64_t MILLISECONDS_MAX = INT64_MAX // 1000


cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key      # NULL is a null, an empty key points into the record
    int32_t key_size
    const uint8_t* value
    int32_t value_size
    const uint8_t* headers
    int32_t header_count


cdef class View:
    """Holds a buffer for as long as a kernel looks at it."""

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
    """The record at `at`, wholly checked; moves `at` behind it."""
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


def scan(payload, int64_t record_count, int64_t base_timestamp):
    """Checks every record of a batch and gathers what produce validation asks for."""
    cdef View view = View(payload)
    cdef Found found
    cdef int fault
    check_count(record_count, view.size)
    if view.size >= RELEASE_GIL_BYTES:
        with nogil:
            fault = scan_records(view.data, view.data + view.size, record_count, base_timestamp, &found)
    else:
        fault = scan_records(view.data, view.data + view.size, record_count, base_timestamp, &found)
    if fault:
        raise grammar.fault(fault, found.index)
    if found.end != view.data + view.size:
        raise grammar.trailing_fault(record_count, view.data + view.size - found.end)
    return Scan(
        found.max_timestamp,
        found.delta_of_max,
        found.min_timestamp,
        bool(found.is_sequential),
        found.first_keyless,
    )


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


def iterate(payload, int64_t record_count, int64_t base_offset, int64_t base_timestamp, append_time_ms):
    """The records of a batch. `append_time_ms` replaces their own times (LogAppendTime batches)."""
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
    cdef object make = tuple.__new__
    cdef object record_type = Record
    cdef tuple headers
    cdef tuple no_headers = ()
    check_count(record_count, view.size)
    for index in range(record_count):
        fault = read_record(&at, end, &fields)
        if fault:
            raise grammar.fault(fault, index)
        timestamp = wrap_add(base_timestamp, fields.timestamp_delta) if own_time else append_time
        headers = no_headers
        if fields.header_count:
            headers = read_headers(fields.headers, at, fields.header_count)
        records.append(
            make(
                record_type,
                (
                    wrap_add(base_offset, fields.offset_delta),
                    timestamp,
                    optional_bytes(fields.key, fields.key_size),
                    optional_bytes(fields.value, fields.value_size),
                    headers,
                ),
            )
        )
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
    """Headers as pairs of bytes, so that their sizes stand still while the record is written."""
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
    """Appends one record to `out` and returns the bytes that it took."""
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


# --- batches to columns


cdef struct Grown:
    uint8_t* data
    size_t size
    size_t capacity


cdef int reserve(Grown* grown, size_t extra) noexcept nogil:
    """Room for `extra` more bytes, doubling; NO_MEMORY if there is none."""
    cdef size_t needed = grown.size + extra
    cdef size_t capacity
    cdef void* data
    if needed <= grown.capacity:
        return 0
    capacity = grown.capacity * 2
    if capacity < needed:
        capacity = needed
    if capacity < 64:
        capacity = 64
    data = realloc(grown.data, capacity)
    if data == NULL:
        return NO_MEMORY
    grown.data = <uint8_t*> data
    grown.capacity = capacity
    return 0


cdef inline void put_int32(Grown* grown, int32_t number) noexcept nogil:
    (<int32_t*> (grown.data + grown.size))[0] = number
    grown.size += 4


cdef inline void put_int64(Grown* grown, int64_t number) noexcept nogil:
    (<int64_t*> (grown.data + grown.size))[0] = number
    grown.size += 8


cdef class Owned:
    """A grown buffer handed to Python: readable by the buffer protocol, freed with the object."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)

    def __len__(self):
        return self.size


cdef Owned hand_over(Grown* grown):
    cdef Owned owned = Owned.__new__(Owned)
    cdef void* shrunk = realloc(grown.data, grown.size if grown.size else 1)
    owned.data = <uint8_t*> shrunk if shrunk != NULL else grown.data
    owned.size = grown.size
    memset(grown, 0, sizeof(Grown))
    return owned


cdef struct BinaryOut:
    Grown offsets
    Grown data
    Grown validity
    int64_t rows
    int64_t nulls


cdef int reserve_rows(BinaryOut* out, int64_t rows, int64_t data_bytes) noexcept nogil:
    if reserve(&out.offsets, (rows + 1) * 4) or reserve(&out.data, data_bytes):
        return NO_MEMORY
    # Room is asked from the bit position on: whole bytes behind it were never written.
    out.validity.size = (out.rows + 7) // 8
    if reserve(&out.validity, rows // 8 + 2):
        return NO_MEMORY
    if not out.offsets.size:
        put_int32(&out.offsets, 0)
    return 0


cdef inline int put_bytes(BinaryOut* out, const uint8_t* data, int32_t size) noexcept nogil:
    """One row. Its room must have been reserved."""
    cdef uint8_t* byte = out.validity.data + (out.rows >> 3)
    cdef uint8_t bit = <uint8_t> (1 << (out.rows & 7))
    if not out.rows & 7:
        byte[0] = 0
    if data == NULL:
        byte[0] &= ~bit
        out.nulls += 1
    else:
        if out.data.size + size > INT32_MAX:
            return COLUMN_FULL
        memcpy(out.data.data + out.data.size, data, size)
        out.data.size += size
        byte[0] |= bit
    put_int32(&out.offsets, <int32_t> out.data.size)
    out.rows += 1
    return 0


cdef inline void free_binary(BinaryOut* out) noexcept:
    free(out.offsets.data)
    free(out.data.data)
    free(out.validity.data)


cdef inline void put_back(BinaryOut* out, BinaryOut* before) noexcept nogil:
    """Forgets the rows of a batch that turned out broken; the memory stays."""
    out.offsets.size = before.offsets.size
    out.data.size = before.data.size
    out.validity.size = before.validity.size
    out.rows = before.rows
    out.nulls = before.nulls


cdef object finish_binary(BinaryOut* out):
    if reserve_rows(out, 0, 0):
        raise MemoryError()
    out.validity.size = (out.rows + 7) // 8
    if out.rows & 7:
        out.validity.data[out.rows >> 3] &= <uint8_t> ((1 << (out.rows & 7)) - 1)
    nulls = out.nulls
    validity = hand_over(&out.validity)
    offsets = hand_over(&out.offsets)
    data = hand_over(&out.data)
    memset(out, 0, sizeof(BinaryOut))
    return BinaryBuffers(nulls, validity, offsets, data)


cdef class ArrowColumns:
    """Columns that grow by one batch at a time. A batch that breaks the format adds nothing."""

    cdef Grown offsets
    cdef Grown timestamps_us
    cdef Grown timestamp_types
    cdef BinaryOut keys
    cdef BinaryOut values
    cdef bint with_headers
    cdef Grown header_offsets
    cdef BinaryOut header_keys
    cdef BinaryOut header_values

    def __cinit__(self, with_headers=False):
        self.with_headers = with_headers

    def __dealloc__(self):
        free(self.offsets.data)
        free(self.timestamps_us.data)
        free(self.timestamp_types.data)
        free(self.header_offsets.data)
        free_binary(&self.keys)
        free_binary(&self.values)
        free_binary(&self.header_keys)
        free_binary(&self.header_values)

    @property
    def rows(self):
        return self.keys.rows

    @property
    def data_bytes(self):
        """Size of the largest variable-length column, which int32 offsets bound."""
        return max(
            self.keys.data.size, self.values.data.size, self.header_keys.data.size, self.header_values.data.size
        )

    def append(
        self,
        payload,
        int64_t record_count,
        int64_t base_offset,
        int64_t base_timestamp,
        append_time_ms,
        int64_t start_offset,
        int64_t end_offset,
    ):
        """Adds the records of a batch with `start_offset` <= offset < `end_offset`; how many they were."""
        cdef View view = View(payload)
        cdef const uint8_t* at = view.data
        cdef const uint8_t* end = view.data + view.size
        cdef bint own_time = append_time_ms is None
        cdef int64_t append_time = 0 if own_time else append_time_ms
        cdef int32_t timestamp_type = 0 if own_time else 1
        cdef int64_t rows_before = self.keys.rows
        cdef Grown offsets_before = self.offsets
        cdef Grown timestamps_before = self.timestamps_us
        cdef Grown types_before = self.timestamp_types
        cdef Grown header_offsets_before = self.header_offsets
        cdef BinaryOut keys_before = self.keys
        cdef BinaryOut values_before = self.values
        cdef BinaryOut header_keys_before = self.header_keys
        cdef BinaryOut header_values_before = self.header_values
        cdef Fields fields
        cdef int64_t index
        cdef int64_t offset
        cdef int64_t timestamp
        cdef int fault
        check_count(record_count, view.size)
        self.reserve_batch(record_count, view.size)
        try:
            for index in range(record_count):
                fault = read_record(&at, end, &fields)
                if fault:
                    raise grammar.fault(fault, index)
                offset = wrap_add(base_offset, fields.offset_delta)
                if offset < start_offset or offset >= end_offset:
                    continue
                put_int64(&self.offsets, offset)
                timestamp = wrap_add(base_timestamp, fields.timestamp_delta) if own_time else append_time
                # Times that only int64 milliseconds can name go to the edge of what microseconds can.
                if timestamp > MILLISECONDS_MAX:
                    timestamp = MILLISECONDS_MAX
                elif timestamp < -MILLISECONDS_MAX:
                    timestamp = -MILLISECONDS_MAX
                put_int64(&self.timestamps_us, timestamp * 1000)
                put_int32(&self.timestamp_types, timestamp_type)
                if put_bytes(&self.keys, fields.key, fields.key_size) or put_bytes(
                    &self.values, fields.value, fields.value_size
                ):
                    raise OverflowError("a column holds at most 2147483647 bytes")
                if self.with_headers:
                    self.append_headers(fields.headers, at, fields.header_count)
            if at != end:
                raise grammar.trailing_fault(record_count, end - at)
        except BaseException:
            self.offsets.size = offsets_before.size
            self.timestamps_us.size = timestamps_before.size
            self.timestamp_types.size = types_before.size
            self.header_offsets.size = header_offsets_before.size
            put_back(&self.keys, &keys_before)
            put_back(&self.values, &values_before)
            put_back(&self.header_keys, &header_keys_before)
            put_back(&self.header_values, &header_values_before)
            raise
        return self.keys.rows - rows_before

    cdef int reserve_batch(self, int64_t rows, int64_t data_bytes) except -1:
        """Room for whatever one batch can hold: the loop then writes without asking."""
        if (
            reserve(&self.offsets, rows * 8)
            or reserve(&self.timestamps_us, rows * 8)
            or reserve(&self.timestamp_types, rows * 4)
            or reserve_rows(&self.keys, rows, data_bytes)
            or reserve_rows(&self.values, rows, data_bytes)
            or reserve(&self.header_offsets, (rows + 1) * 4 if self.with_headers else 0)
        ):
            raise MemoryError()
        return 0

    cdef int append_headers(self, const uint8_t* at, const uint8_t* end, int32_t header_count) except -1:
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef int32_t key_size
        cdef int32_t value_size
        cdef int32_t header
        cdef View name
        if not self.header_offsets.size:
            put_int32(&self.header_offsets, 0)
        for header in range(header_count):
            if read_bytes(&at, end, &key, &key_size, HEADER_KEY) or key == NULL:
                raise AssertionError("header changed while it was read")
            if read_bytes(&at, end, &value, &value_size, HEADER_VALUE):
                raise AssertionError("header changed while it was read")
            name = None
            if not is_ascii(key, key_size):
                name = View(PyUnicode_DecodeUTF8(<char*> key, key_size, b"replace").encode())
                key = name.data
                key_size = <int32_t> name.size
            if reserve_rows(&self.header_keys, 1, key_size) or reserve_rows(&self.header_values, 1, value_size):
                raise MemoryError()
            if put_bytes(&self.header_keys, key, key_size) or put_bytes(&self.header_values, value, value_size):
                raise OverflowError("a column holds at most 2147483647 bytes")
        put_int32(&self.header_offsets, <int32_t> self.header_keys.rows)
        return 0

    def finish(self):
        """The columns; nothing may be appended any more."""
        rows = self.keys.rows
        headers = None
        if self.with_headers:
            if reserve(&self.header_offsets, 4):
                raise MemoryError()
            if not self.header_offsets.size:
                put_int32(&self.header_offsets, 0)
            total = self.header_keys.rows
            header_keys = finish_binary(&self.header_keys)
            headers = HeadersBuffers(
                hand_over(&self.header_offsets), total, header_keys, finish_binary(&self.header_values)
            )
        offsets = hand_over(&self.offsets)
        timestamps_us = hand_over(&self.timestamps_us)
        timestamp_types = hand_over(&self.timestamp_types)
        keys = finish_binary(&self.keys)
        return ColumnBuffers(
            rows, offsets, timestamps_us, timestamp_types, keys, finish_binary(&self.values), headers
        )


cdef inline bint is_ascii(const uint8_t* data, int32_t size) noexcept nogil:
    cdef int32_t position
    for position in range(size):
        if data[position] > 0x7F:
            return False
    return True


# --- columns to batches


cdef class BinaryReader:
    """Rows of an Arrow binary column, none read outside its buffers."""

    cdef View validity
    cdef View offsets
    cdef View data
    cdef int64_t array_offset
    cdef bint is_large

    def __cinit__(self, column, int64_t rows):
        cdef int64_t last
        self.array_offset = column.array_offset
        self.is_large = column.is_large
        if self.array_offset < 0 or rows < 0 or self.array_offset > INT64_MAX // 16 - rows:
            raise ValueError("a column's numbers do not cover its rows")
        last = self.array_offset + rows
        self.offsets = View(column.offsets)
        if (last + 1) * (8 if self.is_large else 4) > self.offsets.size:
            raise ValueError("a column's numbers do not cover its rows")
        self.data = View(column.data)
        self.validity = bitmap(column.validity, last)

    cdef inline int64_t bound(self, int64_t index) noexcept nogil:
        cdef int32_t narrow
        cdef int64_t wide
        if self.is_large:
            memcpy(&wide, self.offsets.data + index * 8, 8)
            return wide
        memcpy(&narrow, self.offsets.data + index * 4, 4)
        return narrow

    cdef inline int row(self, int64_t row, const uint8_t** data, int64_t* size) except -1:
        """NULL for a null. The row was checked against the columns' length when this was made."""
        cdef int64_t index = self.array_offset + row
        cdef int64_t start
        cdef int64_t end
        if not is_valid(self.validity, index):
            data[0] = NULL
            size[0] = 0
            return 0
        start = self.bound(index)
        end = self.bound(index + 1)
        if start < 0 or start > end or end > self.data.size:
            raise ValueError("an offset lies outside its column")
        data[0] = self.data.data + start if self.data.data != NULL else &EMPTY
        size[0] = end - start
        return 0


cdef View bitmap(object validity, int64_t bits):
    cdef View view
    if validity is None:
        return None
    view = View(validity)
    if bits > 8 * view.size:
        raise ValueError("a column's validity does not cover its rows")
    return view


cdef inline bint is_valid(View validity, int64_t index) noexcept:
    return validity is None or (validity.data[index >> 3] >> (index & 7)) & 1


cdef class HeadersReader:
    """Rows of an Arrow list<struct<key, value>> column."""

    cdef View validity
    cdef View offsets
    cdef int64_t array_offset
    cdef int32_t total
    cdef BinaryReader keys
    cdef BinaryReader values

    def __cinit__(self, column, int64_t rows):
        cdef int64_t last
        self.array_offset = column.array_offset
        if self.array_offset < 0 or rows < 0 or self.array_offset > INT64_MAX // 16 - rows:
            raise ValueError("a column's numbers do not cover its rows")
        last = self.array_offset + rows
        self.offsets = View(column.offsets)
        if (last + 1) * 4 > self.offsets.size:
            raise ValueError("a column's numbers do not cover its rows")
        self.validity = bitmap(column.validity, last)
        self.total = self.bound(last)
        self.keys = BinaryReader(column.keys, self.total)
        self.values = BinaryReader(column.values, self.total)

    cdef inline int32_t bound(self, int64_t index) noexcept nogil:
        cdef int32_t number
        memcpy(&number, self.offsets.data + index * 4, 4)
        return number

    cdef int row(self, int64_t row, int32_t* start, int32_t* end) except -1:
        cdef int64_t index = self.array_offset + row
        start[0] = end[0] = 0
        if not is_valid(self.validity, index):
            return 0
        start[0] = self.bound(index)
        end[0] = self.bound(index + 1)
        if start[0] < 0 or start[0] > end[0] or end[0] > self.total:
            raise ValueError("an offset lies outside its column")
        return 0

    cdef int64_t size(self, int32_t start, int32_t end) except -1:
        """Encoded size of the headers from `start` to `end`."""
        cdef const uint8_t* data
        cdef int64_t data_size
        cdef int64_t size = 0
        cdef int32_t position
        for position in range(start, end):
            self.keys.row(position, &data, &data_size)
            if data == NULL:
                raise ValueError("a header key is null")
            size += bytes_size(data, data_size)
            self.values.row(position, &data, &data_size)
            size += bytes_size(data, data_size)
        return size

    cdef uint8_t* write(self, uint8_t* at, uint8_t* limit, int32_t start, int32_t end) except NULL:
        cdef const uint8_t* data
        cdef int64_t data_size
        cdef int32_t position
        for position in range(start, end):
            self.keys.row(position, &data, &data_size)
            if data == NULL or bytes_size(data, data_size) > limit - at:
                raise AssertionError("header changed while it was written")
            at = write_bytes(at, data, data_size)
            self.values.row(position, &data, &data_size)
            if bytes_size(data, data_size) > limit - at:
                raise AssertionError("header changed while it was written")
            at = write_bytes(at, data, data_size)
        return at


def encode_rows(columns, int64_t start, int64_t stop, int64_t target_bytes, int64_t room_bytes=0):
    """Encodes rows from `start` on, up to `stop` or until the records would exceed `target_bytes`.

    At least one row is taken, however large. Offset deltas count from 0.
    """
    if not 0 <= start <= stop or not 0 <= room_bytes <= INT32_MAX:
        raise ValueError("rows begin before 0 or end before they begin")
    cdef BinaryReader keys = BinaryReader(columns.keys, stop) if columns.keys is not None else None
    cdef BinaryReader values = BinaryReader(columns.values, stop) if columns.values is not None else None
    cdef HeadersReader headers = HeadersReader(columns.headers, stop) if columns.headers is not None else None
    cdef View timestamps = View(columns.timestamps)
    if stop > timestamps.size // 8:
        raise ValueError("a column's numbers do not cover its rows")
    cdef bytearray payload = PyByteArray_FromStringAndSize(
        NULL, room_bytes + expected_bytes(keys, values, start, stop, target_bytes)
    )
    cdef int64_t capacity = len(payload)
    cdef uint8_t* out = <uint8_t*> PyByteArray_AS_STRING(payload)
    cdef uint8_t* at
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int64_t key_size = 0
    cdef int64_t value_size = 0
    cdef int64_t header_bytes = 0
    cdef int32_t header_start = 0
    cdef int32_t header_end = 0
    cdef int64_t timestamp
    cdef int64_t base_timestamp = -1
    cdef int64_t max_timestamp = -1
    cdef int64_t delta
    cdef int64_t body
    cdef int64_t used = room_bytes
    cdef int64_t needed
    cdef int64_t row = start
    memset(out, 0, room_bytes)
    while row < stop:
        memcpy(&timestamp, timestamps.data + row * 8, 8)
        if row == start:
            base_timestamp = timestamp
        delta = <int64_t> (<uint64_t> timestamp - <uint64_t> base_timestamp)
        if keys is not None:
            keys.row(row, &key, &key_size)
        if values is not None:
            values.row(row, &value, &value_size)
        if headers is not None:
            headers.row(row, &header_start, &header_end)
            header_bytes = headers.size(header_start, header_end)
        body = 1 + varint_size(delta) + varint_size(row - start)
        body += bytes_size(key, key_size) + bytes_size(value, value_size)
        body += varint_size(header_end - header_start) + header_bytes
        if body > INT32_MAX:
            raise OverflowError("a record holds at most 2147483647 bytes")
        needed = used + varint_size(body) + body
        if row > start and needed - room_bytes > target_bytes:
            break
        if needed > capacity:
            capacity = max(needed, 2 * capacity)
            PyByteArray_Resize(payload, capacity)
            out = <uint8_t*> PyByteArray_AS_STRING(payload)
        at = write_varint(out + used, body)
        at[0] = 0
        at = write_varint(at + 1, delta)
        at = write_varint(at, row - start)
        at = write_bytes(at, key, key_size)
        at = write_bytes(at, value, value_size)
        at = write_varint(at, header_end - header_start)
        if header_end > header_start:
            at = headers.write(at, out + needed, header_start, header_end)
        used = needed
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        row += 1
    PyByteArray_Resize(payload, used)
    return EncodedRows(payload, row, base_timestamp, max_timestamp)


cdef int64_t expected_bytes(
    BinaryReader keys, BinaryReader values, int64_t start, int64_t stop, int64_t target_bytes
):
    """A guess that saves most growing: the rows' data and a little for each, at most the target."""
    cdef int64_t guess = (stop - start) * 16
    if keys is not None:
        guess += max(0, keys.bound(keys.array_offset + stop) - keys.bound(keys.array_offset + start))
    if values is not None:
        guess += max(0, values.bound(values.array_offset + stop) - values.bound(values.array_offset + start))
    return max(64, min(guess, target_bytes, INT32_MAX))


# --- the partitioner's hash


cdef int32_t murmur2_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t hashed = <uint32_t> 0x9747B28C ^ <uint32_t> size
    cdef uint32_t word
    cdef int64_t whole = size & ~<int64_t> 3
    cdef int64_t position = 0
    while position < whole:
        word = (
            <uint32_t> data[position]
            | <uint32_t> data[position + 1] << 8
            | <uint32_t> data[position + 2] << 16
            | <uint32_t> data[position + 3] << 24
        )
        word *= <uint32_t> 0x5BD1E995
        word ^= word >> 24
        word *= <uint32_t> 0x5BD1E995
        hashed *= <uint32_t> 0x5BD1E995
        hashed ^= word
        position += 4
    if whole < size:
        word = 0
        while size > whole:
            size -= 1
            word = word << 8 | data[size]
        hashed = (hashed ^ word) * <uint32_t> 0x5BD1E995
    hashed = (hashed ^ hashed >> 13) * <uint32_t> 0x5BD1E995
    hashed ^= hashed >> 15
    return <int32_t> (hashed & <uint32_t> 0x7FFFFFFF)


def murmur2(data):
    """The hash of Java's `Utils.murmur2` made positive, by which its default partitioner divides."""
    cdef View view = View(data)
    return murmur2_of(view.data, view.size)


def murmur2_column(column, int64_t rows):
    """`murmur2` of each row as native int32; -1 where the key is null."""
    cdef BinaryReader reader = BinaryReader(column, rows)
    cdef bytearray hashes = PyByteArray_FromStringAndSize(NULL, rows * 4)
    cdef uint8_t* out = <uint8_t*> PyByteArray_AS_STRING(hashes)
    cdef const uint8_t* key
    cdef int64_t key_size
    cdef int64_t row
    cdef int32_t hashed
    for row in range(rows):
        reader.row(row, &key, &key_size)
        hashed = -1 if key == NULL else murmur2_of(key, key_size)
        memcpy(out + row * 4, &hashed, 4)
    return hashes
