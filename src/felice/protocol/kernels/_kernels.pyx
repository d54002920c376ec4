# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Reads and writes messages from the table of their fields. `decoder` and `encoder` are the same in Python.

Keeps true:  every position is compared with the end of the buffer before a byte is read; an array's length is compared
             with the bytes that are left and with the limit of elements before memory is allocated.
             What `Struct.read` returns and `Struct.write` writes is what the plain codec returns and writes.
             Other threads may have the interpreter lock after each `PAUSE_ELEMENTS` elements: large messages are read
             and written on threads, and must not stop the event loop meanwhile.
How:         messages have slots, so a value is stored at, and loaded from, its place in the object. Whatever is not
             an ordinary message (malformed bytes, a value of the wrong type, a tagged field to write) is left to the
             plain codec: `read` and `write` return None, and the plain codec finds the result or the error.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from types import MemberDescriptorType

from felice.protocol.primitives import Encoded, uuid_from_bytes

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t felice_slot(PyObject *descriptor) {
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : -1;
    }
    #define FELICE_SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
    static inline PyObject *felice_new(PyObject *type) {
        return ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 0);
    }
    """
    Py_ssize_t felice_slot(object)
    PyObject* FELICE_SLOT(PyObject*, Py_ssize_t)
    object felice_new(PyObject*)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    bint PyUnicode_Check(object)

# The numbers of the kinds are those of `plan.KINDS`.
cdef enum:
    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    FLOAT64 = 7
    UUID = 8
    STRING = 9
    BYTES = 10
    RECORDS = 11
    ARRAY = 12
    STRUCT = 13
    STRING_MAX_BYTES = 32767
    COPIED_BYTES = 1024  # as `encoder.COPIED_BYTES`
    PAUSE_ELEMENTS = 1000  # no fewer than `connection.SMALL_REQUEST_ELEMENTS`: the event loop reads those itself
    MAX_UVARINT_BYTES = 5

cdef enum:
    CONSTANT = 0
    NEW_LIST = 1
    NEW_STRUCT = 2


cdef struct In:
    const uint8_t* data
    Py_ssize_t position
    Py_ssize_t end
    int64_t room
    int64_t until_pause  # elements
    bint is_left  # to the plain codec


cdef struct Out:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity
    int64_t parts_bytes  # in the parts that are complete
    int64_t until_pause  # elements
    bint is_left


cdef inline int64_t pause_if_due(int64_t until_pause) except -1:
    """Counts an element; gives other threads the interpreter lock if it is their turn."""
    if until_pause > 1:
        return until_pause - 1
    with nogil:
        pass
    return PAUSE_ELEMENTS


cdef inline bint has(In* source, Py_ssize_t size) noexcept:
    if size > source.end - source.position:
        source.is_left = True
        return False
    return True


cdef inline uint64_t take(In* source, int width) noexcept:
    """The next `width` bytes, which are there, as a number."""
    cdef const uint8_t* at = source.data + source.position
    cdef uint64_t value = 0
    cdef int index
    for index in range(width):
        value = value << 8 | at[index]
    source.position += width
    return value


cdef inline int64_t read_uvarint(In* source) noexcept:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int count
    for count in range(MAX_UVARINT_BYTES):
        if not has(source, 1):
            return 0
        byte = source.data[source.position]
        source.position += 1
        value |= <uint64_t> (byte & 0x7F) << (7 * count)
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return <int64_t> value
    source.is_left = True
    return 0


cdef int grow(Out* out, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity = out.capacity
    cdef void* data
    if size > capacity - out.size:
        while size > capacity - out.size:
            capacity = 256 if capacity == 0 else capacity * 2
        data = realloc(out.data, capacity)
        if data == NULL:
            raise MemoryError
        out.data = <uint8_t*> data
        out.capacity = capacity
    return 0


cdef inline int put(Out* out, uint64_t value, int width) except -1:
    cdef int index
    grow(out, width)
    for index in range(width):
        out.data[out.size + index] = <uint8_t> (value >> (8 * (width - 1 - index)))
    out.size += width
    return 0


cdef inline int put_bytes(Out* out, const void* data, Py_ssize_t size) except -1:
    grow(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int put_uvarint(Out* out, uint64_t value) except -1:
    while value > 127:
        put(out, value & 0x7F | 0x80, 1)
        value >>= 7
    return put(out, value, 1)


def request_header(frame):
    """Key, version, correlation id and client id of a request, and the position behind them; None: ask `frames`."""
    cdef In source
    cdef Py_buffer held
    cdef int64_t key
    cdef int64_t version
    cdef int64_t correlation_id
    cdef int64_t length
    PyObject_GetBuffer(frame, &held, PyBUF_SIMPLE)
    try:
        source.data = <const uint8_t*> held.buf
        source.position = 0
        source.end = held.len
        source.is_left = False
        if not has(&source, 10):
            return None
        key = <int16_t> take(&source, 2)
        version = <int16_t> take(&source, 2)
        correlation_id = <int32_t> take(&source, 4)
        length = <int16_t> take(&source, 2)
        if length == -1:
            return key, version, correlation_id, None, source.position
        if length < 0 or not has(&source, length):
            return None
        client_id = PyUnicode_DecodeUTF8(<char*> source.data + source.position, length, NULL)
        return key, version, correlation_id, client_id, source.position + length
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&held)


def memory_of(Py_ssize_t size):
    """A bytearray of this size whose content is undefined: `bytearray(size)` would fill it with zeros."""
    return PyByteArray_FromStringAndSize(NULL, size)


def whole_frames(memory, Py_ssize_t end, int64_t max_bytes):
    """Copies of the frames that are whole in `memory[:end]`, and the position behind the last of them.

    Stops before a frame whose size is not between 0 and `max_bytes`.
    """
    cdef In source
    cdef Py_buffer held
    cdef int64_t size
    cdef list frames = []
    PyObject_GetBuffer(memory, &held, PyBUF_SIMPLE)
    try:
        source.data = <const uint8_t*> held.buf
        source.position = 0
        source.end = min(end, held.len)
        source.is_left = False
        while source.end - source.position >= 4:
            size = <int32_t> take(&source, 4)
            if size < 0 or size > max_bytes or size > source.end - source.position:
                source.position -= 4
                break
            frames.append(
                memoryview(PyByteArray_FromStringAndSize(<const char*> source.data + source.position, size))
            )
            source.position += size
        return frames, source.position
    finally:
        PyBuffer_Release(&held)


cdef class Type:
    """The type of a field, or of the elements of an array."""

    cdef int kind
    cdef bint nullable
    cdef bint flexible
    cdef Py_ssize_t least_bytes
    cdef Type element
    cdef Struct struct

    def __init__(self, int kind, bint nullable, bint flexible, Py_ssize_t least_bytes, element, struct):
        self.kind = kind
        self.nullable = nullable
        self.flexible = flexible
        self.least_bytes = least_bytes
        self.element = element
        self.struct = struct

    cdef object read(self, In* source, object view):
        cdef double number
        cdef uint64_t bits
        cdef int64_t length
        cdef int kind = self.kind
        if kind == BOOL:
            return take(source, 1) != 0 if has(source, 1) else None
        if kind == INT8:
            return <int8_t> take(source, 1) if has(source, 1) else None
        if kind == INT16:
            return <int16_t> take(source, 2) if has(source, 2) else None
        if kind == UINT16:
            return <uint16_t> take(source, 2) if has(source, 2) else None
        if kind == INT32:
            return <int32_t> take(source, 4) if has(source, 4) else None
        if kind == UINT32:
            return <uint32_t> take(source, 4) if has(source, 4) else None
        if kind == INT64:
            return <int64_t> take(source, 8) if has(source, 8) else None
        if kind == FLOAT64:
            if not has(source, 8):
                return None
            bits = take(source, 8)
            memcpy(&number, &bits, 8)
            return number
        if kind == UUID:
            if not has(source, 16):
                return None
            source.position += 16
            return uuid_from_bytes(
                PyBytes_FromStringAndSize(<const char*> source.data + source.position - 16, 16)
            )
        if kind == STRUCT:
            if self.nullable:
                if not has(source, 1):
                    return None
                if <int8_t> take(source, 1) < 0:
                    return None
            return self.struct.read_fields(source, view)
        if self.flexible:
            length = read_uvarint(source) - 1
        elif kind == STRING:
            length = <int16_t> take(source, 2) if has(source, 2) else -1
        else:
            length = <int32_t> take(source, 4) if has(source, 4) else -1
        if source.is_left:
            return None
        if length < 0:
            if length != -1 or not self.nullable:
                source.is_left = True
            return None
        if kind == ARRAY:
            return self.read_elements(source, length, view)
        if not has(source, length):
            return None
        return self.read_sized(source, length, view)

    cdef object read_tagged(self, In* source, object view):
        """The value of a tagged field, where the byte before a struct is 0 for null."""
        if self.kind == STRUCT and self.nullable and has(source, 1) and source.data[source.position] == 0:
            source.position += 1
            return None
        return self.read(source, view)

    cdef object read_sized(self, In* source, Py_ssize_t length, object view):
        cdef const char* start = <const char*> source.data + source.position
        cdef Py_ssize_t position = source.position
        source.position += length
        if self.kind == STRING:
            if length > STRING_MAX_BYTES:
                source.is_left = True
                return None
            return PyUnicode_DecodeUTF8(<char*> start, length, NULL)
        if self.kind == BYTES:
            return PyBytes_FromStringAndSize(start, length)
        return view[position : position + length]

    cdef list read_elements(self, In* source, int64_t count, object view):
        cdef list found
        cdef object item
        cdef int64_t index
        if count * self.element.least_bytes > source.end - source.position:
            source.is_left = True
            return None
        source.room -= count
        if source.room < 0:
            source.is_left = True
            return None
        found = []
        for index in range(count):
            item = self.element.read(source, view)
            if source.is_left:
                return None
            found.append(item)
            source.until_pause = pause_if_due(source.until_pause)
        return found

    cdef int write(self, object value, Out* out, list parts) except -1:
        cdef int kind = self.kind
        cdef double number
        cdef uint64_t bits
        cdef Py_ssize_t size
        cdef const char* text
        if kind == BOOL:
            if value is not True and value is not False:
                out.is_left = True
                return 0
            return put(out, value is True, 1)
        if kind <= INT64:
            return self.write_number(value, out)
        if kind == FLOAT64:
            if type(value) is not float:
                out.is_left = True
                return 0
            number = value
            memcpy(&bits, &number, 8)
            return put(out, bits, 8)
        if kind == UUID:
            raw = value.bytes
            if type(raw) is not bytes or len(<bytes> raw) != 16:
                out.is_left = True
                return 0
            return put_bytes(out, <const char*> (<bytes> raw), 16)
        if kind == STRUCT:
            if self.nullable:
                put(out, 0xFF if value is None else 1, 1)
                if value is None:
                    return 0
            return self.struct.write_fields(value, out, parts)
        if value is None:
            if not self.nullable:
                out.is_left = True
                return 0
            return self.write_length(-1, out)
        if kind == STRING:
            if not PyUnicode_Check(value):
                out.is_left = True
                return 0
            text = PyUnicode_AsUTF8AndSize(value, &size)
            if size > STRING_MAX_BYTES:
                out.is_left = True
                return 0
            self.write_length(size, out)
            return put_bytes(out, text, size)
        if kind == ARRAY:
            return self.write_elements(value, out, parts)
        return self.write_sized(value, out, parts)

    cdef int write_length(self, int64_t length, Out* out) except -1:
        if self.flexible:
            return put_uvarint(out, <uint64_t> (length + 1))
        return put(out, <uint64_t> length, 2 if self.kind == STRING else 4)

    cdef int write_number(self, object value, Out* out) except -1:
        cdef int overflow = 0
        cdef int64_t number
        cdef int kind = self.kind
        if not PyLong_Check(value):
            out.is_left = True
            return 0
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            out.is_left = True
        elif kind == INT64:
            return put(out, <uint64_t> number, 8)
        elif kind == INT32 and number == <int32_t> number:
            return put(out, <uint64_t> number, 4)
        elif kind == INT16 and number == <int16_t> number:
            return put(out, <uint64_t> number, 2)
        elif kind == INT8 and number == <int8_t> number:
            return put(out, <uint64_t> number, 1)
        elif kind == UINT16 and number == <uint16_t> number:
            return put(out, <uint64_t> number, 2)
        elif kind == UINT32 and number == <uint32_t> number:
            return put(out, <uint64_t> number, 4)
        else:
            out.is_left = True
        return 0

    cdef int write_elements(self, object value, Out* out, list parts) except -1:
        cdef Py_ssize_t index
        cdef Py_ssize_t count
        cdef list items
        cdef object item
        if type(value) is not list:
            out.is_left = True
            return 0
        items = <list> value
        count = PyList_GET_SIZE(items)
        self.write_length(count, out)
        for index in range(count):
            if index >= PyList_GET_SIZE(items):
                out.is_left = True
            else:
                item = <object> PyList_GET_ITEM(items, index)  # kept, even if another thread changes the list
                self.element.write(item, out, parts)
            if out.is_left:
                return 0
            out.until_pause = pause_if_due(out.until_pause)
        return 0

    cdef int write_sized(self, object value, Out* out, list parts) except -1:
        """Bytes or records. Large ones, and records in files, become parts of their own."""
        cdef Py_buffer buffer
        cdef object size_bytes
        if isinstance(value, (bytes, bytearray, memoryview)):
            PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
            try:
                self.write_length(buffer.len, out)
                if buffer.len <= COPIED_BYTES:
                    put_bytes(out, buffer.buf, buffer.len)
                    return 0
                out.parts_bytes += buffer.len
            finally:
                PyBuffer_Release(&buffer)
        else:
            size_bytes = value.size_bytes
            if type(size_bytes) is not int:
                out.is_left = True
                return 0
            self.write_length(size_bytes, out)
            if size_bytes == 0:
                return 0
            out.parts_bytes += <int64_t> size_bytes
        out.parts_bytes += out.size
        parts.append(PyByteArray_FromStringAndSize(<const char*> out.data, out.size))
        parts.append(value)
        out.size = 0
        return 0


cdef class Field:
    """A field, and what a version does with it: `is_present` on the wire, and if so perhaps `tag`ged (else -1)."""

    cdef Py_ssize_t slot
    cdef Type type
    cdef bint is_present
    cdef bint is_ignorable
    cdef int64_t tag
    cdef int fresh
    cdef object default

    def __init__(self, descriptor, Type type, bint is_present, bint is_ignorable, int64_t tag, int fresh, default):
        if not isinstance(descriptor, MemberDescriptorType) or felice_slot(descriptor) < 0:
            raise TypeError(f"{descriptor!r} is no slot")
        self.slot = felice_slot(descriptor)
        self.type = type
        self.is_present = is_present
        self.is_ignorable = is_ignorable
        self.tag = tag
        self.fresh = fresh
        self.default = default

    cdef object made_default(self):
        if self.fresh == NEW_LIST:
            return []
        return self.default() if self.fresh == NEW_STRUCT else self.default

    cdef bint has_default(self, object value) except -1:
        """Whether the value is surely the default."""
        if self.fresh == NEW_LIST:
            return type(value) is list and PyList_GET_SIZE(value) == 0
        if self.fresh == NEW_STRUCT:
            return False
        return value is self.default or (type(value) is type(self.default) and value == self.default)


cdef class Struct:
    """A message, or a struct in one, in one version."""

    cdef object cls
    cdef tuple fields
    cdef bint flexible
    cdef object message
    cdef int64_t version
    cdef bint may_be_encoded
    cdef bint has_records

    def __init__(self, cls, bint flexible, message, int64_t version, bint may_be_encoded):
        self.cls = cls
        self.flexible = flexible
        self.message = message
        self.version = version
        self.may_be_encoded = may_be_encoded
        self.fields = ()

    def define(self, tuple fields, bint has_records):
        """Sets the fields, in the order of the schema, and whether records are among them."""
        for field in fields:
            if not isinstance(field, Field):
                raise TypeError(f"{field!r} is no field")
        self.fields = fields
        self.has_records = has_records

    def read(self, buffer, Py_ssize_t position, int64_t limit):
        """The message at `position`, of at most `limit` elements, and the position behind it; None: ask the plain codec."""
        cdef In source
        cdef Py_buffer held
        cdef object found
        PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
        try:
            source.data = <const uint8_t*> held.buf
            source.position = position
            source.end = held.len
            source.room = limit
            source.until_pause = PAUSE_ELEMENTS
            source.is_left = position < 0
            if source.is_left:
                return None
            found = self.read_fields(&source, memoryview(buffer) if self.has_records else None)
            return None if source.is_left else (found, source.position)
        except UnicodeDecodeError:
            return None
        finally:
            PyBuffer_Release(&held)

    def write(self, message, bytes head, bint is_frame=False):
        """`head` and the message in parts; None: ask the plain codec.

        The first four bytes of the `head` of a frame become the size of all that follows them.
        """
        cdef Out out
        cdef list parts = []
        out.parts_bytes = 0
        out.until_pause = PAUSE_ELEMENTS
        out.data = NULL
        out.size = out.capacity = 0
        out.is_left = False
        try:
            put_bytes(&out, <const char*> head, len(head))
            self.write_fields(message, &out, parts)
            if out.is_left:
                return None
            if out.size:
                parts.append(PyByteArray_FromStringAndSize(<const char*> out.data, out.size))
            if is_frame:
                set_size(<bytearray?> parts[0], out.parts_bytes + out.size - 4)
            return parts
        except (AttributeError, TypeError, UnicodeEncodeError, BufferError, OverflowError):
            return None
        finally:
            free(out.data)

    cdef object read_fields(self, In* source, object view):
        cdef object made = felice_new(<PyObject*> self.cls)
        cdef PyObject* place = <PyObject*> made
        cdef Field field
        cdef object value
        cdef Py_ssize_t index
        for index in range(PyTuple_GET_SIZE(self.fields)):
            field = <Field> PyTuple_GET_ITEM(self.fields, index)
            if field.is_present and field.tag < 0:
                value = field.type.read(source, view)
                if source.is_left:
                    return None
            else:
                value = field.made_default()
            store(place, field.slot, value)
        if self.flexible:
            self.read_tags(source, place, view)
        return made

    cdef int read_tags(self, In* source, PyObject* place, object view) except -1:
        cdef int64_t count = read_uvarint(source)
        cdef int64_t index
        cdef int64_t tag
        cdef int64_t size
        cdef Py_ssize_t stop
        cdef Field field
        if source.is_left:
            return 0
        source.room -= count
        if source.room < 0:
            source.is_left = True
        for index in range(count):
            tag = read_uvarint(source)
            size = read_uvarint(source)
            if source.is_left or not has(source, size):
                return 0
            stop = source.position + size
            field = self.tagged(tag)
            if field is not None:
                value = field.type.read_tagged(source, view)
                if source.position != stop:
                    source.is_left = True
                if source.is_left:
                    return 0
                store(place, field.slot, value)
            source.position = stop
        return 0

    cdef Field tagged(self, int64_t tag):
        cdef Field field
        for field in self.fields:
            if field.is_present and field.tag == tag:
                return field
        return None

    cdef int write_fields(self, object message, Out* out, list parts) except -1:
        cdef Field field
        cdef PyObject* found
        cdef Py_ssize_t index
        if type(message) is not self.cls:
            if self.may_be_encoded and type(message) is Encoded:
                return self.write_encoded(message, out)
            out.is_left = True
            return 0
        for index in range(PyTuple_GET_SIZE(self.fields)):
            field = <Field> PyTuple_GET_ITEM(self.fields, index)
            if not field.is_present and field.is_ignorable:
                continue
            found = FELICE_SLOT(<PyObject*> message, field.slot)
            if found == NULL:
                out.is_left = True
            elif field.is_present and field.tag < 0:
                field.type.write(<object> found, out, parts)
            elif not field.has_default(<object> found):
                out.is_left = True
            if out.is_left:
                return 0
        return put(out, 0, 1) if self.flexible else 0

    cdef int write_encoded(self, object element, Out* out) except -1:
        cdef bytes data = element.data
        if element.version != self.version or element.cls is not self.cls or element.message is not self.message:
            out.is_left = True
            return 0
        return put_bytes(out, <const char*> data, len(data))


cdef int set_size(bytearray first, int64_t size) except -1:
    cdef uint8_t* at = <uint8_t*> PyByteArray_AS_STRING(first)
    cdef int index
    if len(first) < 4 or size > INT32_MAX:
        raise ValueError("not a frame")
    for index in range(4):
        at[index] = <uint8_t> (size >> (24 - 8 * index))
    return 0


cdef inline void store(PyObject* place, Py_ssize_t slot, object value):
    """Stores the value of a slot, which may be unset."""
    cdef PyObject** at = <PyObject**> (<char*> place + slot)
    cdef PyObject* old = at[0]
    Py_INCREF(value)
    at[0] = <PyObject*> value
    if old != NULL:
        drop(old)


cdef extern from "Python.h":
    void drop "Py_DECREF"(PyObject*)
