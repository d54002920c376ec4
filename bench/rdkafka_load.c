/* Produces or consumes as fast as librdkafka can, or both at a fixed rate, and prints what it saw as one line of JSON.
 *
 *   rdkafka_load produce BOOTSTRAP TOPIC RECORDS RECORD_BYTES [key=value ...]
 *   rdkafka_load consume BOOTSTRAP TOPIC RECORDS PARTITIONS   [key=value ...]
 *   rdkafka_load latency BOOTSTRAP TOPIC RECORDS RECORD_BYTES PARTITIONS RATE
 *
 * The clock of `produce` starts when the client is made and stops at the last acknowledgement. That of `consume` starts
 * when the first message is there, which does not count: librdkafka waits half a second before it asks for the first
 * offsets. A latency starts when a record is due, even if it is sent later, and ends when the consumer gets the
 * record. The first fifth of the records, among them those that wait for connections, does not count. */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long delivered, failed;
/* Records that came before the clock started. */
static long untimed;
static double begun;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) failed++;
    delivered++;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap, int argc, char **argv) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error)) fail("bootstrap", error);
    for (int i = 0; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) fail(argv[i], "expected key=value");
        *equals = 0;
        if (rd_kafka_conf_set(conf, argv[i], equals + 1, error, sizeof error)) fail(argv[i], error);
    }
    if (type == RD_KAFKA_PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) fail("client", error);
    return rk;
}

static void produce(rd_kafka_t *rk, const char *topic_name, long records, size_t size) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
    char *payload = malloc(size ? size : 1);
    for (size_t i = 0; i < size; i++) payload[i] = 'a' + (char)(i % 26);
    for (long sent = 0; sent < records;) {
        if (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, 0, payload, size, NULL, 0, NULL) == 0) {
            if (++sent % 10000 == 0) rd_kafka_poll(rk, 0);
        } else if (rd_kafka_last_error() == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
            rd_kafka_poll(rk, 5);
        } else {
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        }
    }
    while (delivered < records) rd_kafka_poll(rk, 100);
    rd_kafka_topic_destroy(topic);
}

static long consume(rd_kafka_t *rk, const char *topic_name, long records, int partitions, long *bytes) {
    enum { BATCH = 10000 };
    static rd_kafka_message_t *messages[BATCH];
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, topic_name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    for (int p = 0; p < partitions; p++)
        rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue);
    long count = 0;
    for (double last = now_s(); count < records && now_s() - last < 20;) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 200, messages, untimed ? BATCH : 1);
        for (ssize_t i = 0; i < got; i++) {
            if (!messages[i]->err) count++, *bytes += (long)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (got > 0) last = now_s();
        if (!untimed && count) untimed = count, begun = last;
    }
    return count;
}

typedef struct {
    const char *bootstrap, *topic;
    long records, size, rate;
} load_t;

static void *send_at_rate(void *argument) {
    const load_t *load = argument;
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, load->bootstrap, 0, NULL);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, load->topic, NULL);
    char *payload = calloc(1, (size_t)load->size);
    double begun = now_s();
    for (long sent = 0; sent < load->records; sent++) {
        double due = begun + (double)sent / (double)load->rate;
        if (due > now_s()) {
            rd_kafka_poll(rk, 0);
            struct timespec pause = {0, 500000};
            while (due > now_s()) nanosleep(&pause, NULL);
        }
        memcpy(payload, &due, sizeof due);
        while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload, (size_t)load->size, NULL, 0,
                                NULL))
            rd_kafka_poll(rk, 1);
    }
    while (delivered < load->records) rd_kafka_poll(rk, 100);
    return NULL;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int latency(load_t *load, int partitions) {
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, load->bootstrap, 0, NULL);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, load->topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    for (int p = 0; p < partitions; p++)
        rd_kafka_consume_start_queue(topic, p, RD_KAFKA_OFFSET_BEGINNING, queue);
    pthread_t sender;
    if (pthread_create(&sender, NULL, send_at_rate, load)) fail("thread", strerror(errno));
    double *times_s = malloc((size_t)load->records * sizeof *times_s);
    long seen = 0, count = 0;
    while (seen < load->records) {
        rd_kafka_message_t *message = rd_kafka_consume_queue(queue, 20000);
        if (!message) fail("latency", "no record for 20 seconds");
        if (!message->err && ++seen > load->records / 5) {
            double due;
            memcpy(&due, message->payload, sizeof due);
            times_s[count++] = now_s() - due;
        }
        rd_kafka_message_destroy(message);
    }
    qsort(times_s, (size_t)count, sizeof *times_s, ascending);
    printf("{\"records\": %ld, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f}\n", count,
           times_s[count / 2] * 1e3, times_s[(long)((double)count * 0.99)] * 1e3,
           times_s[(long)((double)count * 0.999)] * 1e3);
    fflush(stdout);
    _Exit(failed ? 2 : 0);
}

int main(int argc, char **argv) {
    if (argc == 8 && !strcmp(argv[1], "latency"))
        return latency(&(load_t){argv[2], argv[3], atol(argv[4]), atol(argv[5]), atol(argv[7])}, atoi(argv[6]));
    if (argc < 6) fail("usage", "rdkafka_load produce|consume BOOTSTRAP TOPIC RECORDS SIZE|PARTITIONS [key=value ...]");
    int producing = !strcmp(argv[1], "produce");
    long records = atol(argv[4]), number = atol(argv[5]), bytes = 0;
    begun = now_s();
    rd_kafka_t *rk = client(producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, argv[2], argc - 6, argv + 6);
    if (producing) {
        produce(rk, argv[3], records, (size_t)number);
        bytes = records * number;
    } else {
        delivered = consume(rk, argv[3], records, (int)number, &bytes);
    }
    printf("{\"records\": %ld, \"failed\": %ld, \"bytes\": %ld, \"seconds\": %.6f}\n",
           delivered - untimed, failed, bytes, now_s() - begun);
    fflush(stdout);
    /* Taking a consumer down waits for its long polls; nothing is measured any more. */
    _Exit(failed || delivered < records ? 2 : 0);
}
