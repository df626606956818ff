/* The daemon, and the callers that wait for its replies. */
#include "relay.h"
#include <time.h>

enum { ABANDONED_MS = 120000 };

struct caller {
    int fd; /* 0: free */
    int is_waiting;
    uint64_t until_ms;
    struct request request;
    struct buffer in;
};

static struct caller callers[CALLERS];
static uint64_t incarnation, outwards_offset, taken;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void hang_up(struct caller *k) {
    close(k->fd);
    release(&k->in);
    memset(k, 0, sizeof *k);
}

static void accept_caller(int control) {
    int fd = accept4(control, NULL, NULL, SOCK_CLOEXEC);
    struct timeval limit = {.tv_sec = 2};
    if (fd < 0) return;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    for (struct caller *k = callers; k < callers + CALLERS; k++)
        if (k->fd == 0) { k->fd = fd; return; }
    close(fd);
}

int send_all(int fd, const void *data, size_t n) {
    for (const char *p = data; n > 0;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return 0;
        p += sent, n -= (size_t)sent;
    }
    return 1;
}

static void answer(struct caller *k) {
    const struct request *r = &k->request;
    uint64_t from = r->acknowledged > outwards_offset ? r->acknowledged : outwards_offset;
    size_t skipped = (size_t)(from - outwards_offset), left = 0;
    if (r->incarnation == incarnation && skipped < size_of(&outwards)) left = size_of(&outwards) - skipped;
    if (left > r->most) left = r->most;
    struct reply reply = {incarnation, taken, from, left};
    if (send_all(k->fd, &reply, sizeof reply)) send_all(k->fd, outwards.data + outwards.start + skipped, left);
    uint32_t wait_ms = r->wait_ms;
    hang_up(k);
    if (wait_ms == QUIT) _exit(0);
}

static int has_reply(const struct caller *k) {
    const struct request *r = &k->request;
    return r->incarnation != incarnation || now_ms() >= k->until_ms ||
           outwards_offset + size_of(&outwards) > r->acknowledged;
}

static void begin_request(struct caller *k) {
    const struct request *r = &k->request;
    const char *data = k->in.data + k->in.start + sizeof *r;
    k->is_waiting = 1;
    k->until_ms = now_ms() + (r->wait_ms == QUIT ? 0 : r->wait_ms);
    if (r->incarnation != incarnation) return;
    if (r->acknowledged > outwards_offset) {
        uint64_t n = r->acknowledged - outwards_offset;
        if (n > size_of(&outwards)) { hang_up(k); return; }
        consume(&outwards, (size_t)n);
        outwards_offset += n;
    }
    if (r->offset <= taken && r->offset + r->length > taken) {
        size_t known = (size_t)(taken - r->offset);
        taken += r->length - known;
        take_bytes(data + known, r->length - known);
    }
}

static void hear(struct caller *k) {
    char chunk[CHUNK];
    ssize_t n = recv(k->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0 || k->is_waiting) { hang_up(k); return; }
    append(&k->in, chunk, (size_t)n);
    if (size_of(&k->in) < sizeof k->request) return;
    memcpy(&k->request, k->in.data + k->in.start, sizeof k->request);
    if (k->request.length > MOST_INWARDS) { hang_up(k); return; }
    if (size_of(&k->in) >= sizeof k->request + k->request.length) begin_request(k);
}

static void answer_callers(void) {
    for (struct caller *k = callers; k < callers + CALLERS; k++)
        if (k->fd != 0 && k->is_waiting && has_reply(k)) answer(k);
}

static void want_callers(struct pollfd *fds, int control) {
    fds[0] = (struct pollfd){.fd = -1, .events = POLLIN};
    for (int i = 0; i < CALLERS; i++) {
        fds[1 + i] = (struct pollfd){.fd = callers[i].fd == 0 ? -1 : callers[i].fd, .events = POLLIN};
        if (callers[i].fd == 0) fds[0].fd = control;
    }
}

static int next_wait_ms(uint64_t until) {
    uint64_t now = now_ms();
    for (const struct caller *k = callers; k < callers + CALLERS; k++)
        if (k->fd != 0 && k->is_waiting && k->until_ms < until) until = k->until_ms;
    return until > now ? (int)(until - now) : 0;
}

/* Serves the port and the callers until one says so, or none has come for a while. */
void serve(uint64_t own_incarnation, int listener, int control) {
    struct pollfd fds[2 + CALLERS + CONNECTIONS], *const others = fds + 1 + CALLERS;
    uint64_t abandoned_ms = now_ms() + ABANDONED_MS;
    incarnation = own_incarnation;
    while (now_ms() < abandoned_ms) {
        want_callers(fds, control);
        others[0].fd = listener;
        want_connections(others);
        if (poll(fds, 2 + CALLERS + CONNECTIONS, next_wait_ms(abandoned_ms)) < 0) {
            if (errno == EINTR) continue;
            _exit(errno);
        }
        serve_connections(others);
        for (int i = 0; i < CALLERS; i++)
            if (fds[1 + i].fd >= 0) {
                abandoned_ms = now_ms() + ABANDONED_MS;
                if (fds[1 + i].revents) hear(&callers[i]);
            }
        if (fds[0].fd >= 0 && fds[0].revents) accept_caller(control);
        answer_callers();
    }
    _exit(0);
}
