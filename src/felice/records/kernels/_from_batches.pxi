"""Batches to Arrow buffers. Room for a whole batch is reserved first, then written without further checks."""

cdef struct Grown:
    uint8_t* data
    size_t size
    size_t capacity


cdef int reserve(Grown* grown, size_t extra) noexcept nogil:
    """Makes room for `extra` more bytes by doubling; NO_MEMORY if the allocation fails."""
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
    """A finished buffer for Python: readable through the buffer protocol, freed with the object."""

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
    if reserve(&out.offsets, (rows + 1) * 4) or reserve(&out.data, data_bytes + 1):
        return NO_MEMORY
    # Reserves from the bit position on: whole bytes behind it were never written.
    out.validity.size = (out.rows + 7) // 8
    if reserve(&out.validity, rows // 8 + 2):
        return NO_MEMORY
    if not out.offsets.size:
        put_int32(&out.offsets, 0)
    return 0


cdef inline int put_bytes(BinaryOut* out, const uint8_t* data, int32_t size) noexcept nogil:
    """Appends one row. The caller must have reserved room."""
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
    """Removes the rows of a broken batch; the memory stays allocated."""
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
        """Size of the largest variable-length column, which int32 offsets limit."""
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
        """Adds the records of a batch with `start_offset` <= offset < `end_offset`; returns how many."""
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
                # Times beyond the range of microseconds become the nearest time in range.
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
        """Reserves room for the largest possible content of one batch, so that the loop writes without checks."""
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
        """Returns the columns. Nothing may be appended afterwards."""
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
