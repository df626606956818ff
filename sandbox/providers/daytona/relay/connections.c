/* The daemon's connections, and the two streams of their frames. */
#include "relay.h"

enum {
    HEADER = 9,
    MOST_UNSENT = 16 << 20, /* of a connection whose program does not read */
};

struct connection {
    int fd; /* 0: free */
    uint32_t id;
    int read_ended, write_ended, was_shut;
    struct buffer unsent;
};

struct buffer outwards;
static struct connection connections[CONNECTIONS];
static uint32_t last_id;

static void put_frame(char type, uint32_t id, const char *data, uint32_t n) {
    char header[HEADER] = {type};
    memcpy(header + 1, &id, 4), memcpy(header + 5, &n, 4);
    append(&outwards, header, HEADER);
    append(&outwards, data, n);
}

static void close_connection(struct connection *c) {
    close(c->fd);
    release(&c->unsent);
    memset(c, 0, sizeof *c);
}

static void break_connection(struct connection *c) {
    put_frame('R', c->id, "", 0);
    close_connection(c);
}

static void close_if_ended(struct connection *c) {
    if (c->write_ended && !c->was_shut && size_of(&c->unsent) == 0) {
        shutdown(c->fd, SHUT_WR);
        c->was_shut = 1;
    }
    if (c->was_shut && c->read_ended) close_connection(c);
}

static void send_some(struct connection *c) {
    if (size_of(&c->unsent) > 0) {
        ssize_t n = send(c->fd, c->unsent.data + c->unsent.start, size_of(&c->unsent), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) { break_connection(c); return; }
        if (n > 0) consume(&c->unsent, (size_t)n);
    }
    close_if_ended(c);
}

static void read_some(struct connection *c) {
    static char chunk[CHUNK];
    ssize_t n = recv(c->fd, chunk, CHUNK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) { break_connection(c); return; }
    if (n > 0) { put_frame('D', c->id, chunk, (uint32_t)n); return; }
    c->read_ended = 1;
    put_frame('E', c->id, "", 0);
    close_if_ended(c);
}

static void accept_connection(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    for (struct connection *c = connections; c < connections + CONNECTIONS; c++)
        if (c->fd == 0) {
            c->fd = fd, c->id = ++last_id;
            put_frame('O', c->id, "", 0);
            return;
        }
    close(fd);
}

static void take_frame(char type, struct connection *c, const char *data, size_t n) {
    switch (type) {
    case 'D':
        append(&c->unsent, data, n);
        if (size_of(&c->unsent) > MOST_UNSENT) { break_connection(c); return; }
        break;
    case 'E': c->write_ended = 1; break;
    case 'R': close_connection(c); return;
    }
    send_some(c);
}

/* Takes the next bytes of the stream inwards. */
void take_bytes(const char *data, size_t n) {
    static struct buffer rest;
    append(&rest, data, n);
    while (size_of(&rest) >= HEADER) {
        const char *p = rest.data + rest.start;
        uint32_t id, length;
        memcpy(&id, p + 1, 4), memcpy(&length, p + 5, 4);
        if (length > MOST_INWARDS) _exit(EPROTO);
        if (size_of(&rest) < HEADER + (size_t)length) return;
        for (struct connection *c = connections; c < connections + CONNECTIONS; c++)
            if (c->fd != 0 && c->id == id) {
                take_frame(*p, c, p + HEADER, length);
                break;
            }
        consume(&rest, HEADER + length);
    }
}

/* Fills in what poll(2) waits for: the first is the listener, whose descriptor is there; the connections follow. */
void want_connections(struct pollfd *fds) {
    int has_room = size_of(&outwards) < MOST_OUTWARDS, are_free = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];
        int reads = has_room && !c->read_ended, writes = size_of(&c->unsent) > 0;
        are_free += c->fd == 0;
        fds[1 + i].fd = c->fd != 0 && (reads || writes) ? c->fd : -1;
        fds[1 + i].events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
    }
    fds[0].events = POLLIN;
    if (!has_room || are_free == 0) fds[0].fd = -1;
}

/* Reads and writes what poll(2) has found possible. */
void serve_connections(const struct pollfd *fds) {
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &connections[i];
        short happened = fds[1 + i].fd < 0 ? 0 : fds[1 + i].revents;
        if (happened & POLLOUT) send_some(c);
        if (c->fd == 0 || !(happened & (POLLIN | POLLHUP | POLLERR))) continue;
        if (fds[1 + i].events & POLLIN && !c->read_ended) read_some(c);
        else if (happened & POLLERR) break_connection(c);
    }
    if (fds[0].fd >= 0 && fds[0].revents) accept_connection(fds[0].fd);
}
