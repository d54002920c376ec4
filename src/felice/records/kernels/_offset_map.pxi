# The offset map of the log cleaner, compiled. Its guarantees are listed in `plain_offset_map`.

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define FELICE_ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define FELICE_SIPROUND \
        v0 += v1; v1 = FELICE_ROTL(v1, 13); v1 ^= v0; v0 = FELICE_ROTL(v0, 32); \
        v2 += v3; v3 = FELICE_ROTL(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = FELICE_ROTL(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = FELICE_ROTL(v1, 17); v1 ^= v2; v2 = FELICE_ROTL(v2, 32);

    /* SipHash-2-4 with 128 bits of output. Its bits never leave the process, so byte order is no matter. */
    static void felice_siphash128(
        const uint8_t* data, size_t size, uint64_t k0, uint64_t k1, uint64_t* low, uint64_t* high
    ) {
        uint64_t v0 = 0x736f6d6570736575ULL ^ k0, v1 = 0x646f72616e646f6dULL ^ k1 ^ 0xee;
        uint64_t v2 = 0x6c7967656e657261ULL ^ k0, v3 = 0x7465646279746573ULL ^ k1;
        uint64_t word = 0;
        const uint8_t* end = data + (size & ~(size_t) 7);
        for (; data != end; data += 8) {
            memcpy(&word, data, 8);
            v3 ^= word; FELICE_SIPROUND FELICE_SIPROUND v0 ^= word;
        }
        word = 0;
        if (size & 7) memcpy(&word, data, size & 7);
        word ^= (uint64_t) size << 56;
        v3 ^= word; FELICE_SIPROUND FELICE_SIPROUND v0 ^= word;
        v2 ^= 0xee;
        FELICE_SIPROUND FELICE_SIPROUND FELICE_SIPROUND FELICE_SIPROUND
        *low = v0 ^ v1 ^ v2 ^ v3;
        v1 ^= 0xdd;
        FELICE_SIPROUND FELICE_SIPROUND FELICE_SIPROUND FELICE_SIPROUND
        *high = v0 ^ v1 ^ v2 ^ v3;
    }
    """
    void felice_siphash128(
        const uint8_t*, size_t, uint64_t, uint64_t, uint64_t*, uint64_t*
    ) noexcept nogil


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t place  # offset + 1; 0 is an empty slot, because new memory is zeroed


cdef struct Filter:
    int64_t kept
    int64_t max_timestamp
    bint has_tombstones
    bint drops
    int64_t index
    const uint8_t* end
    Py_ssize_t size


cdef class OffsetMap:
    cdef Slot* table
    cdef readonly int64_t slots
    cdef int64_t used
    cdef uint64_t k0, k1

    def __cinit__(self, int64_t slots, bytes secret not None):
        if slots < 1 or len(secret) != 16:
            raise ValueError("an offset map needs slots and a secret of 16 bytes")
        memcpy(&self.k0, PyBytes_AS_STRING(secret), 8)
        memcpy(&self.k1, PyBytes_AS_STRING(secret) + 8, 8)
        self.slots = slots
        self.table = <Slot*> calloc(slots, sizeof(Slot))
        if self.table == NULL:
            raise MemoryError(f"no memory for an offset map of {slots} slots")

    def __dealloc__(self):
        free(self.table)

    def __len__(self):
        return self.used

    cdef Slot* find(self, uint64_t low, uint64_t high) noexcept nogil:
        """The slot of a hash, or the empty slot where it belongs; NULL if the map is full without it."""
        cdef int64_t at = <int64_t> (high % <uint64_t> self.slots)
        cdef int64_t left
        cdef Slot* slot
        for left in range(self.slots):
            slot = self.table + at
            if slot.place == 0 or (slot.low == low and slot.high == high):
                return slot
            at += 1
            if at == self.slots:
                at = 0
        return NULL

    cdef int64_t look_up(self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
        cdef uint64_t low, high
        cdef Slot* slot
        felice_siphash128(key, size, self.k0, self.k1, &low, &high)
        slot = self.find(low, high)
        return -1 if slot == NULL else slot.place - 1

    cdef bint store(self, const uint8_t* key, Py_ssize_t size, int64_t offset, int64_t max_keys) noexcept nogil:
        cdef uint64_t low, high
        cdef Slot* slot
        felice_siphash128(key, size, self.k0, self.k1, &low, &high)
        slot = self.find(low, high)
        if slot == NULL:
            return False
        if slot.place == 0:
            if self.used >= max_keys:
                return False
            self.used += 1
            slot.low = low
            slot.high = high
        slot.place = offset + 1
        return True

    def get(self, bytes key not None):
        return self.look_up(<const uint8_t*> PyBytes_AS_STRING(key), len(key))

    cdef int put_all(
        self, const uint8_t** at, const uint8_t* end, int64_t record_count, int64_t base_offset,
        int64_t start_offset, int64_t max_keys, int64_t* stopped, int64_t* index,
    ) noexcept nogil:
        cdef Fields fields
        cdef int64_t offset
        cdef int fault
        stopped[0] = -1
        for index[0] in range(record_count):
            fault = read_record(at, end, &fields)
            if fault:
                return fault
            offset = wrap_add(base_offset, fields.offset_delta)
            if fields.key == NULL or offset < start_offset or stopped[0] >= 0:
                continue
            if not self.store(fields.key, fields.key_size, offset, max_keys):
                stopped[0] = offset
        return 0

    def put_records(
        self, payload, int64_t record_count, int64_t base_offset, int64_t start_offset, int64_t max_keys
    ):
        cdef View view = View(payload)
        cdef const uint8_t* at = view.data
        cdef const uint8_t* end = view.data + view.size
        cdef int64_t stopped = -1
        cdef int64_t index = 0
        cdef int fault
        check_count(record_count, view.size)
        with nogil:
            fault = self.put_all(
                &at, end, record_count, base_offset, start_offset, max_keys, &stopped, &index
            )
        if fault:
            raise grammar.fault(fault, index)
        if at != end:
            raise grammar.trailing_fault(record_count, end - at)
        return stopped

    cdef int filter_all(
        self, const uint8_t* at, const uint8_t* end, uint8_t* out, int64_t record_count, int64_t base_offset,
        int64_t base_timestamp, int64_t end_offset, bint keeps_tombstones, Filter* found,
    ) noexcept nogil:
        cdef Fields fields
        cdef const uint8_t* start
        cdef const uint8_t* run = at  # adjacent kept records are copied together
        cdef uint8_t* to = out
        cdef int64_t offset, timestamp
        cdef bint kept
        cdef int fault
        found.kept = 0
        found.max_timestamp = -1
        found.has_tombstones = found.drops = False
        for found.index in range(record_count):
            start = at
            fault = read_record(&at, end, &fields)
            if fault:
                return fault
            offset = wrap_add(base_offset, fields.offset_delta)
            if offset >= end_offset:
                kept = True
            elif fields.key == NULL or (fields.value == NULL and not keeps_tombstones):
                kept = False
            else:
                kept = offset >= self.look_up(fields.key, fields.key_size)
            if kept:
                found.kept += 1
                timestamp = wrap_add(base_timestamp, fields.timestamp_delta)
                if timestamp > found.max_timestamp:
                    found.max_timestamp = timestamp
                if fields.value == NULL:
                    found.has_tombstones = True
            else:
                found.drops = True
                memcpy(to, run, start - run)
                to += start - run
                run = at
        memcpy(to, run, at - run)
        to += at - run
        found.size = to - out
        found.end = at
        return 0

    def keep_latest(
        self, payload, int64_t record_count, int64_t base_offset, int64_t base_timestamp, int64_t end_offset,
        bint keeps_tombstones,
    ):
        cdef View view = View(payload)
        cdef Filter found
        cdef bytearray out
        cdef uint8_t* to
        cdef int fault
        check_count(record_count, view.size)
        out = PyByteArray_FromStringAndSize(NULL, view.size)
        to = <uint8_t*> PyByteArray_AS_STRING(out)
        with nogil:
            fault = self.filter_all(
                view.data, view.data + view.size, to, record_count, base_offset, base_timestamp, end_offset,
                keeps_tombstones, &found,
            )
        if fault:
            raise grammar.fault(fault, found.index)
        if found.end != view.data + view.size:
            raise grammar.trailing_fault(record_count, view.data + view.size - found.end)
        if not found.drops:
            return KeptRecords(None, found.kept, found.max_timestamp, bool(found.has_tombstones))
        PyByteArray_Resize(out, found.size)
        return KeptRecords(out, found.kept, found.max_timestamp, bool(found.has_tombstones))
