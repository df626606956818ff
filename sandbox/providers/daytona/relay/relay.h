/* What the files of this program share; main.c says what it does. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS = 64,
    CALLERS = 8,
    CHUNK = 32 << 10,
    MOST_OUTWARDS = 1 << 20,  /* kept until acknowledged; nothing more is read from the connections */
    MOST_INWARDS = 128 << 10, /* of one exchange */
};
static const uint32_t QUIT = UINT32_MAX; /* instead of a wait */

struct request {
    uint64_t incarnation, acknowledged, offset;
    uint32_t most, wait_ms, length;
};

struct reply {
    uint64_t incarnation, taken, offset;
    uint64_t length;
};

/* buffer.c */
struct buffer {
    char *data;
    size_t start, end, capacity;
};
size_t size_of(const struct buffer *b);
void append(struct buffer *b, const void *data, size_t n);
void consume(struct buffer *b, size_t n);
void release(struct buffer *b);

/* connections.c */
extern struct buffer outwards;   /* the stream outwards, from its first byte that was not acknowledged */
void take_bytes(const char *data, size_t n);
void want_connections(struct pollfd *fds);
void serve_connections(const struct pollfd *fds);

/* daemon.c */
_Noreturn void serve(uint64_t incarnation, int listener, int control);
int send_all(int fd, const void *data, size_t n);
