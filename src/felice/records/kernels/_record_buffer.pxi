"""The buffer in which a batch is filled record by record, and the bounds of a producer's queue."""

cdef enum:
    ROOM_BYTES = 61  # of a batch's header
    SMALLEST_CAPACITY = 1024
    RECORD_MOST_BYTES = 36  # of a record without headers, beside its key and value


cdef struct Content:
    const uint8_t* data  # NULL means null
    Py_ssize_t size


cdef inline int content_of(object source, Content* out) except -1:
    """Points `out` at bytes. Returns 1 for another type, which needs a view that stays alive meanwhile."""
    if source is None:
        out.data = NULL
        out.size = 0
        return 0
    if type(source) is bytes:
        out.data = <const uint8_t*> PyBytes_AS_STRING(source)
        out.size = PyBytes_GET_SIZE(source)
        return 0
    return 1


cdef class QueueBounds:
    """Counts the records and bytes of a producer's queue against its bounds; `max_records` 0 means no bound."""

    cdef readonly int64_t record_count
    cdef readonly int64_t size_bytes
    cdef int64_t max_records
    cdef int64_t max_bytes

    def __init__(self, int64_t max_records, int64_t max_bytes):
        self.max_records = max_records if max_records > 0 else INT64_MAX
        self.max_bytes = max_bytes

    cdef inline bint fits(self, int64_t size_bytes) noexcept:
        return self.record_count < self.max_records and self.size_bytes + size_bytes <= self.max_bytes

    def has_room(self, int64_t size_bytes, int64_t record_count=1):
        """Whether `record_count` more records, of `size_bytes` together, are within the bounds."""
        return self.record_count <= self.max_records - record_count and self.size_bytes + size_bytes <= self.max_bytes

    def add(self, int64_t record_count, int64_t size_bytes):
        """Counts records without a check; negative numbers take them away."""
        self.record_count += record_count
        self.size_bytes += size_bytes


cdef class RecordBuffer:
    """The encoded records of one batch, behind room for its header. Offsets are 0, 1, 2 ..."""

    cdef bytearray data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef readonly int32_t record_count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef QueueBounds bounds
    cdef int32_t most_records
    cdef Py_ssize_t most_bytes
    cdef list reports
    cdef bint is_open

    def __init__(self, Py_ssize_t capacity=0, bytearray memory=None):
        self.capacity = max(capacity, <Py_ssize_t> SMALLEST_CAPACITY)
        if memory is None:
            self.data = PyByteArray_FromStringAndSize(NULL, self.capacity)
        else:
            self.capacity = max(self.capacity, PyByteArray_GET_SIZE(memory))
            PyByteArray_Resize(memory, self.capacity)
            self.data = memory
        memset(PyByteArray_AS_STRING(self.data), 0, ROOM_BYTES)
        self.used = ROOM_BYTES
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = -1
        self.is_open = False

    @property
    def size_bytes(self):
        """Size of the batch without compression, with its header."""
        return self.used

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Doubles the buffer, so that a batch is copied at most once on average."""
        cdef Py_ssize_t needed = self.used + size
        if needed > self.capacity:
            needed = max(needed, 2 * self.capacity)
            PyByteArray_Resize(self.data, needed)
            self.capacity = needed
        return 0

    cdef inline Py_ssize_t write(self, int64_t timestamp, Content key, Content value) except -1:
        cdef int64_t delta = timestamp - self.base_timestamp if self.record_count else 0
        cdef Py_ssize_t body = 2 + varint_size(delta) + varint_size(self.record_count)
        body += bytes_size(key.data, key.size) + bytes_size(value.data, value.size)
        if body > INT32_MAX:
            raise OverflowError("a record holds at most 2147483647 bytes")
        cdef Py_ssize_t taken = varint_size(body) + body
        self.make_room(taken)
        cdef uint8_t* at = <uint8_t*> PyByteArray_AS_STRING(self.data) + self.used
        at = write_varint(at, body)
        at[0] = 0
        at = write_varint(at + 1, delta)
        at = write_varint(at, self.record_count)
        at = write_bytes(at, key.data, key.size)
        at = write_bytes(at, value.data, value.size)
        at[0] = 0  # no headers
        self.count(timestamp, taken)
        return taken

    cdef inline void count(self, int64_t timestamp, Py_ssize_t taken) noexcept:
        if not self.record_count:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.used += taken
        self.record_count += 1

    def append(self, int64_t timestamp_ms, key, value, headers=()):
        """Adds one record and returns its size in bytes before compression."""
        cdef Content key_content
        cdef Content value_content
        cdef Py_ssize_t taken
        if self.data is None:
            raise ValueError("the batch was taken")
        if not headers and timestamp_ms >= 0 and (self.base_timestamp >= 0 or not self.record_count):
            if not content_of(key, &key_content) and not content_of(value, &value_content):
                return self.write(timestamp_ms, key_content, value_content)
        # As Python's numbers: the difference of two timestamps may need more than 64 bits.
        delta = <object> timestamp_ms - <object> self.base_timestamp if self.record_count else 0
        encoded = bytearray()
        taken = encode_record(encoded, self.record_count, delta, key, value, headers)
        self.make_room(taken)
        memcpy(PyByteArray_AS_STRING(self.data) + self.used, PyByteArray_AS_STRING(encoded), taken)
        self.count(timestamp_ms, taken)
        return taken

    def open_for_offers(
        self, QueueBounds bounds not None, int32_t most_records, Py_ssize_t most_bytes, list reports not None
    ):
        """Lets `Offers` add records within these bounds, until `close_for_offers`."""
        self.bounds = bounds
        self.most_records = most_records
        self.most_bytes = most_bytes
        self.reports = reports
        self.is_open = True

    def close_for_offers(self):
        """Later offers are refused."""
        self.is_open = False

    cdef int offer(self, timestamp_ms, key, value, report) except -1:
        """Adds a record and its report if both are plain and all bounds allow it; otherwise changes nothing.

        Returns 0 if the record was not added, 1 if it was, 2 if it was and the batch is full. Nothing in here runs
        Python code or gives the GIL away, so it needs no lock against other threads that use this buffer.
        """
        cdef Content key_content
        cdef Content value_content
        cdef int overflow = 0
        cdef int64_t timestamp
        cdef Py_ssize_t most
        cdef Py_ssize_t taken
        if not self.is_open or type(timestamp_ms) is not int:
            return 0
        timestamp = PyLong_AsLongLongAndOverflow(timestamp_ms, &overflow)
        if overflow or timestamp < 0:
            return 0
        if content_of(key, &key_content) or content_of(value, &value_content):
            return 0
        most = RECORD_MOST_BYTES + key_content.size + value_content.size
        if self.used + most > self.most_bytes or self.record_count >= self.most_records:
            return 0
        if not self.bounds.fits(most):
            return 0
        if report is not None:
            while PyList_GET_SIZE(self.reports) < self.record_count:
                PyList_Append(self.reports, None)
        taken = self.write(timestamp, key_content, value_content)
        if report is not None:
            PyList_Append(self.reports, report)
        self.bounds.record_count += 1
        self.bounds.size_bytes += taken
        return 2 if self.record_count >= self.most_records else 1

    def take(self):
        """Returns the batch with room for its header. The buffer is of no use afterwards."""
        cdef bytearray data = self.data
        if data is None:
            raise ValueError("the batch was taken")
        self.is_open = False
        self.data = None
        PyByteArray_Resize(data, self.used)
        return data


cdef class OpenBatches:
    """The open batches of one topic, by partition. `sticky` is the partition of records without a key, or -1."""

    cdef dict buffers
    cdef public int32_t sticky

    def __init__(self):
        self.buffers = {}
        self.sticky = -1

    def add(self, int32_t partition, RecordBuffer buffer not None):
        """Lets the partition's records go into this buffer."""
        self.buffers[partition] = buffer

    def remove(self, int32_t partition):
        """Lets no more records of the partition be added."""
        self.buffers.pop(partition, None)


cdef class Offers:
    """Adds plain records to the open batches of `topics`, by their names."""

    cdef readonly dict topics
    cdef bint sticks_without_key

    def __init__(self, bint sticks_without_key):
        self.topics = {}
        self.sticks_without_key = sticks_without_key

    def offer(self, topic, partition, timestamp_ms, key, value, report):
        """Adds a record and its report to an open batch if both are plain and all its bounds allow it.

        Returns 0 if the record was not added, 1 if it was, 2 if it was and the batch is full. `partition` below 0
        stands for the sticky partition, if the record has no key and such records stick to it. Nothing in here runs
        Python code or gives the GIL away, so it needs no lock against other threads that use these batches.
        """
        cdef OpenBatches opened
        cdef RecordBuffer buffer
        if type(topic) is not str or type(partition) is not int:
            return 0
        opened = self.topics.get(topic)
        if opened is None:
            return 0
        if partition < 0:
            if key is not None or not self.sticks_without_key:
                return 0
            partition = opened.sticky
        buffer = opened.buffers.get(partition)
        return 0 if buffer is None else buffer.offer(timestamp_ms, key, value, report)
