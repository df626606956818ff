/* Writes a command's whole output, up to a limit, to a file of the sandbox.  Nothing waits for it or fails with it: a full
   disk ends the file. */
#include "init.h"

void spool_begin(struct spool *s, const char *path, size_t path_length, uint32_t after, uint32_t most) {
    spool_end(s);
    s->saved = 0;
    if (!path_length || path_length >= sizeof s->path || after > MAX_FRAME) return;
    memcpy(s->path, path, path_length);
    s->path[path_length] = 0;
    s->after = after, s->most = most;
    s->held = malloc(after ? after : 1);
    if (!s->held) s->path[0] = 0;
}

static void put(struct spool *s, const char *data, size_t length) {
    size_t room = s->most - s->saved;
    if (length > room) length = room;
    while (length && s->fd >= 0) {
        ssize_t n = write(s->fd, data, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) { close_fd(&s->fd); return; }
        data += n, length -= (size_t)n, s->saved += (uint32_t)n;
    }
}

void spool_feed(struct spool *s, const char *data, size_t length) {
    if (!s->path[0]) return;
    if (s->held && s->held_length + length <= s->after) {
        memcpy(s->held + s->held_length, data, length);
        s->held_length += (uint32_t)length;
        return;
    }
    if (s->held) { /* the first byte too many: O_EXCL, so that nothing of the agent's is followed or overwritten */
        make_parents(s->path);
        s->fd = open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        put(s, s->held, s->held_length);
        free(s->held);
        s->held = NULL;
    }
    put(s, data, length);
}

void spool_end(struct spool *s) {
    close_fd(&s->fd);
    free(s->held);
    s->held = NULL;
    s->held_length = 0;
    s->path[0] = 0;
}
