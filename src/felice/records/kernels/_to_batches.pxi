"""Arrow buffers to encoded records, and murmur2 over a column."""

cdef class BinaryReader:
    """Rows of an Arrow binary column. Never reads outside the column's buffers."""

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
        """NULL for a null. The constructor checked the number of rows against the buffers."""
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
    """An estimate that avoids most reallocations: the rows' data and a little for each row, at most the target."""
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
    """Java's `Utils.murmur2`, made positive: its default partitioner uses this hash."""
    cdef View view = View(data)
    return murmur2_of(view.data, view.size)


def murmur2_column(column, int64_t rows):
    """`murmur2` of each row as native int32; -1 if the key is null."""
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
