/* Sends one request again and again over some connections, each after the reply to the previous one.

   request_load PORT CONNECTIONS SECONDS FILE: FILE has the bytes of the request, size included. Prints JSON. The
   connections share a thread that waits with epoll, so that the load takes a small part of the machine. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_DESCRIPTORS = 4096, MAX_TIMES = 4000000, MAX_BYTES = 1 << 20 };

static char request[MAX_BYTES], reply[MAX_BYTES];
static size_t request_size;
static double sent_s[MAX_DESCRIPTORS];
static size_t missing[MAX_DESCRIPTORS]; /* bytes of the reply that have not come; 0 before its size is known */
static float times_ms[MAX_TIMES];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void ask(int fd) {
    sent_s[fd] = now_s();
    if (write(fd, request, request_size) != (ssize_t)request_size) fail("write");
}

static int open_connection(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd >= MAX_DESCRIPTORS || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* Whether the reply is whole. */
static int receive(int fd) {
    ssize_t got = read(fd, reply, sizeof reply);
    uint32_t size;
    if (got < 4) fail("the broker closed the connection, or sent less than a size");
    memcpy(&size, reply, sizeof size);
    if (!missing[fd]) missing[fd] = ntohl(size) + sizeof size;
    missing[fd] -= (size_t)got;
    return !missing[fd];
}

static int by_time(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "request_load PORT CONNECTIONS SECONDS FILE\n"), 2;
    FILE *file = fopen(argv[4], "rb");
    if (!file) fail(argv[4]);
    request_size = fread(request, 1, sizeof request, file);
    int poll = epoll_create1(0), connections = atoi(argv[2]);
    for (int i = 0; i < connections; i++) {
        int fd = open_connection(atoi(argv[1]));
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
        ask(fd);
    }
    long count = 0;
    double begun = now_s(), end = begun + atof(argv[3]);
    while (now_s() < end) {
        struct epoll_event events[256];
        int ready = epoll_wait(poll, events, 256, 100);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (!receive(fd)) continue;
            if (count < MAX_TIMES) times_ms[count] = (float)((now_s() - sent_s[fd]) * 1000);
            count++;
            ask(fd);
        }
    }
    double seconds = now_s() - begun;
    size_t timed = (size_t)(count < MAX_TIMES ? count : MAX_TIMES);
    if (!timed) fail("no reply");
    qsort(times_ms, timed, sizeof *times_ms, by_time);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n", count, seconds,
           times_ms[timed / 2], times_ms[timed * 99 / 100]);
}
