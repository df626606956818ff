/*
 * Time, and frames to the client.  Writes to standard output never block: what does not fit waits in a queue.
 *
 * A frame stays in the queue until the client has acknowledged it, so that a client whose stream broke gets the frames in
 * flight again, and nothing twice: everything that was ever sent has a position, and SYNC names one.
 */
#include "init.h"
#include <time.h>

enum { OUT_CAPACITY = 8 << 20, OUT_WINDOW = 512 << 10, OUT_SLACK = 256 << 10 };

static char out[OUT_CAPACITY];
static size_t out_start, out_sent, out_end; /* sent but not acknowledged; written of that; all */
static uint64_t out_position;               /* of out_start, in bytes since the beginning */
static char apart[HEADER + 64];             /* a frame outside the queue, which is sent first */
static size_t apart_length;

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
    if (apart_length) {
        if (write(1, apart, apart_length) < 0) return; /* whole or not at all: it is small, and this is a pipe */
        apart_length = 0;
    }
    while (out_sent < out_end) {
        ssize_t n = write(1, out + out_sent, out_end - out_sent);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        out_sent += (size_t)n;
    }
}

size_t out_queued(void) { return out_end - out_sent + apart_length; }

/* Return whether output may be read: a client that does not keep up delays the writer, and loses nothing. */
int out_has_room(void) { return out_end - out_start < OUT_WINDOW; }

static void move_to_front(void) {
    memmove(out, out + out_start, out_end - out_start);
    out_end -= out_start, out_sent -= out_start;
    out_start = 0;
}

/* The client has received everything before this position. */
void heard(uint64_t position) {
    if (position < out_position || position > out_position + (out_sent - out_start)) return;
    out_start += (size_t)(position - out_position);
    out_position = position;
    if (out_start == out_end) out_start = out_sent = out_end = 0;
    else if (out_start > OUT_SLACK) move_to_front();
}

/* Send everything after this position again; a new client, at NEW_CLIENT, gets nothing of what was sent before.  Returns
   the position of the next frame. */
uint64_t tell_from(uint64_t position) {
    if (position == NEW_CLIENT) {
        out_position += out_end - out_start;
        out_start = out_sent = out_end = 0;
    } else heard(position);
    out_sent = out_start;
    return out_position;
}

char *reserve(size_t n) {
    n += HEADER;
    if (OUT_CAPACITY - out_end < n) move_to_front();
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
    if (!at) return; /* the client has not read megabytes of control frames: the deadline ends this */
    memcpy(at, payload, length);
    commit(at, type, length);
}

void send_apart(char type, const void *payload, size_t length) {
    uint32_t n = (uint32_t)length;
    apart[0] = type;
    memcpy(apart + 1, &n, 4);
    memcpy(apart + HEADER, payload, length);
    apart_length = HEADER + length;
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
