/* Time, and frames to the client.  Standard output is never written blockingly: what does not fit waits in a queue. */
#include "init.h"
#include <time.h>

enum { OUT_CAPACITY = 8 << 20, OUT_HIGH_WATER = 256 << 10 };

static char out[OUT_CAPACITY];
static size_t out_start, out_end;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ms(void) { return now_ns() / 1000000u; }

void pause_us(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

void flush_out(void) {
    while (out_start < out_end) {
        ssize_t n = write(1, out + out_start, out_end - out_start);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        out_start += (size_t)n;
    }
    out_start = out_end = 0;
}

size_t out_queued(void) { return out_end - out_start; }

/* Whether output may be read: a client that does not keep up holds the writer back, and loses nothing. */
int out_has_room(void) { return out_queued() < OUT_HIGH_WATER; }

char *reserve(size_t n) {
    n += HEADER;
    if (OUT_CAPACITY - out_end < n) {
        memmove(out, out + out_start, out_queued());
        out_end -= out_start;
        out_start = 0;
    }
    return OUT_CAPACITY - out_end < n ? NULL : out + out_end + HEADER;
}

void commit(char *at, char type, size_t length) {
    uint32_t n = (uint32_t)length;
    at[-HEADER] = type;
    memcpy(at - HEADER + 1, &n, 4);
    out_end += HEADER + length;
}

void send_frame(char type, const void *payload, size_t length) {
    char *at = reserve(length);
    if (!at) return; /* the client has not read for megabytes of control frames: the deadline ends this */
    memcpy(at, payload, length);
    commit(at, type, length);
}

void send_ack(uint32_t id, int32_t error, uint32_t value) {
    char b[12];
    memcpy(b, &id, 4), memcpy(b + 4, &error, 4), memcpy(b + 8, &value, 4);
    send_frame('A', b, sizeof b);
}

void leave(uint8_t reason) {
    send_frame('B', &reason, 1);
    flush_out();
    _exit(0);
}
