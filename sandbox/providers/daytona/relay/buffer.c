/* Bytes that are appended at the end and consumed from the start. */
#include "relay.h"

size_t size_of(const struct buffer *b) { return b->end - b->start; }

void append(struct buffer *b, const void *data, size_t n) {
    if (n == 0) return;
    if (b->end + n > b->capacity) {
        size_t held = size_of(b);
        if (b->start > 0) memmove(b->data, b->data + b->start, held);
        b->start = 0, b->end = held;
        while (b->end + n > b->capacity) b->capacity = b->capacity ? 2 * b->capacity : CHUNK;
        b->data = realloc(b->data, b->capacity);
        if (b->data == NULL) _exit(ENOMEM);
    }
    memcpy(b->data + b->end, data, n);
    b->end += n;
}

void consume(struct buffer *b, size_t n) {
    b->start += n;
    if (b->start == b->end) b->start = b->end = 0;
}

void release(struct buffer *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}
