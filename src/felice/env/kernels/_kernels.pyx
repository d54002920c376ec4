# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Receives from a socket without the interpreter's lock. `plain` is the same in Python.

Keeps true:  nothing is written outside the buffer, which cannot be resized meanwhile;
             a call takes at most `limit_ms`, and the time to copy what has arrived.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t

from os import strerror

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd*, unsigned long, int)
    short POLLIN

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int, void*, size_t, int)
    int MSG_DONTWAIT

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_MONOTONIC
    int clock_gettime(int, timespec*)


cdef int64_t microseconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000 + now.tv_nsec // 1000


cdef bint has_bytes(int descriptor, int idle_ms, int64_t end) noexcept nogil:
    # Wait for bytes, or the end of the stream; False after `idle_ms` and at `end`.
    cdef pollfd watched
    cdef int64_t left_ms = max(<int64_t> 0, (end - microseconds() + 999) // 1000)
    watched.fd = descriptor
    watched.events = POLLIN
    return poll(&watched, 1, <int> min(left_ms, idle_ms)) != 0


cdef Py_ssize_t receive_all(int descriptor, char* memory, Py_ssize_t size, int idle_ms, int limit_ms) noexcept nogil:
    # The number of received bytes; below 0 the number of an error.
    cdef int64_t end = microseconds() + <int64_t> limit_ms * 1000
    cdef Py_ssize_t position = 0, count
    while position < size:
        count = recv(descriptor, memory + position, size - position, MSG_DONTWAIT)
        if count == 0:
            break
        if count > 0:
            position += count
        elif errno == EAGAIN:
            if not has_bytes(descriptor, idle_ms, end):
                break
        elif errno != EINTR:
            return -errno
        if microseconds() >= end:
            break
    return position


def receive(int descriptor, buffer, int idle_ms, int limit_ms):
    """Receive from a non-blocking socket until the buffer is full, and return the number of bytes.

    It ends earlier at the end of the stream, after `idle_ms` without bytes, and after `limit_ms`. Raises OSError.
    """
    cdef Py_buffer held
    cdef Py_ssize_t count
    PyObject_GetBuffer(buffer, &held, PyBUF_WRITABLE)
    try:
        with nogil:
            count = receive_all(descriptor, <char*> held.buf, held.len, idle_ms, limit_ms)
    finally:
        PyBuffer_Release(&held)
    if count < 0:
        raise OSError(-count, strerror(-count))
    return count
