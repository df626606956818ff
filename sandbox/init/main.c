/*
 * sbx-init: PID 1 of a sandbox.
 *
 * It owns the agent's shells and terminals and answers typed, length-prefixed frames on its attach stream (stdin and
 * stdout of the container).  These hold whatever else runs in the container:
 *
 *   - No output can be taken for a frame: a shell's commands and statuses are no output, and this process is not
 *     dumpable, so that root inside (without CAP_SYS_PTRACE) can open neither its descriptors nor its memory.
 *   - No signal affects it: it reads SIGCHLD through a signalfd, and the others are not even queued.
 *     Orphans are reaped.
 *   - Nothing inside can take its descriptors or its time: prlimit(2) compares all three of its group ids, of which one
 *     differs (where the user namespace has that id; otherwise an agent can end its own sandbox), and its children may
 *     not change its scheduling (guard.c).
 *   - It ends at a deadline (CLOCK_BOOTTIME) that only a frame can extend, never past the maximum: the container ends
 *     even when every process that knew of it is dead.  EOF on stdin only means that no extension will come.  Writes to
 *     standard output never block, so a client that stops reading cannot delay the deadline.
 *   - KILL_ALL answers 0 only when no other process exists in the PID namespace.
 *   - A client whose stream broke continues over a new one without loss: it begins with the container's key (in.c), SYNC
 *     reports which of its frames arrived and sends again what it has not received, and a repeated frame is handled
 *     once.  Another client gets the state of the slots, and nothing that was sent before.
 *
 * An agent can lie about the exit code of its own command, in its own shell.  Nothing that counts reads it.
 *
 * A frame is: type u8, length u32 LE, payload; a frame from the client also has a checksum (in.c).  The other end,
 * sandbox/session/init_connection/, names every type.  Arguments: first deadline (ms), maximum (ms), working directory,
 * key.  If the first argument is `links`, this program runs as a child of PID 1 (links.c).
 */
#include "init.h"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

enum { CHILD_SLOT = 0xFFFF, NONCE = 16, OTHER_GROUP = 65534 };

static uint64_t deadline_ms, maximum_ms;
static uint32_t last_id; /* of the frames that were handled; a client's ids increase */

static uint32_t remaining_ms(void) {
    uint64_t now = now_ms();
    return deadline_ms > now ? (uint32_t)(deadline_ms - now) : 0;
}

static void extend(uint32_t id, uint32_t ms) {
    uint64_t now = now_ms();
    deadline_ms = now + ms < maximum_ms ? now + ms : maximum_ms;
    send_ack(id, 0, remaining_ms());
}

/* A place for the whole output: after u32, most u32, path length u16, path.  Returns its length. */
static size_t begin_spool(struct slot *s, const char *p, size_t n) {
    uint32_t after, most;
    uint16_t length;
    if (n < 10) leave(BYE_PROTOCOL);
    memcpy(&after, p, 4), memcpy(&most, p + 4, 4), memcpy(&length, p + 8, 2);
    if (10u + length > n) leave(BYE_PROTOCOL);
    spool_begin(&s->spool, p + 10, length, after, most);
    return 10u + length;
}

static void handle_run(uint32_t id, struct slot *s, char *p, size_t n) {
    if (s->pending || s->kind == TERMINAL) { send_ack(id, EBUSY, 0); return; }
    size_t used = begin_spool(s, p, n);
    run_command(id, s, p + used, n - used);
}

static void handle_terminal(uint32_t id, struct slot *s, char *p, size_t n) {
    static struct strings of;
    uint16_t rows, columns;
    if (n < 4) leave(BYE_PROTOCOL);
    memcpy(&rows, p, 2), memcpy(&columns, p + 2, 2);
    if (s->kind != FREE) { send_ack(id, EBUSY, 0); return; }
    size_t used = 4 + begin_spool(s, p + 4, n - 4);
    if (!parse_strings(&of, p + used, n - used)) leave(BYE_PROTOCOL);
    open_terminal(id, s, rows, columns, of.argv, of.envp, of.cwd);
}

static void handle_resize(uint32_t id, struct slot *s, const char *p, size_t n) {
    uint16_t rows, columns;
    if (n != 4) leave(BYE_PROTOCOL);
    memcpy(&rows, p, 2), memcpy(&columns, p + 2, 2);
    resize(id, s, rows, columns);
}

/* nonce, position u64.  Answers with nonce, protocol u8, last handled frame u32, position u64.  If it is repeated with the
   same nonce on the same stream, it was already answered: a second answer would come in the middle of what follows. */
static void handle_sync(uint32_t id, const char *p, size_t n) {
    static char answered[NONCE];
    char b[NONCE + 13];
    uint64_t position;
    if (n != NONCE + 8) leave(BYE_PROTOCOL);
    if (memcmp(answered, p, NONCE) == 0) return;
    memcpy(answered, p, NONCE);
    memcpy(&position, p + NONCE, 8);
    int is_new = position == NEW_CLIENT;
    if (is_new) last_id = id;
    position = tell_from(position);
    memcpy(b, p, NONCE);
    b[NONCE] = PROTOCOL;
    memcpy(b + NONCE + 1, &last_id, 4), memcpy(b + NONCE + 5, &position, 8);
    send_apart('Y', b, sizeof b);
    if (is_new) tell_slots();
    send_ack(id, 0, remaining_ms());
}

static void handle_heard(const char *p, size_t n) {
    uint64_t position;
    if (n != 8) leave(BYE_PROTOCOL);
    memcpy(&position, p, 8);
    heard(position);
}

/* Frames whose payload goes on with the number of a slot. */
static void handle_slot_frame(char type, uint32_t id, char *p, size_t n) {
    uint16_t which;
    if (n < 2) leave(BYE_PROTOCOL);
    memcpy(&which, p, 2);
    p += 2, n -= 2;
    if (which == CHILD_SLOT && type == 'I') { kill_child(); send_ack(id, 0, 0); return; }
    if (which >= SLOTS) leave(BYE_PROTOCOL);
    struct slot *s = &slots[which];
    switch (type) {
    case 'R': handle_run(id, s, p, n); break;
    case 'P': handle_terminal(id, s, p, n); break;
    case 'T': type_into(id, s, p, n); break;
    case 'Z': handle_resize(id, s, p, n); break;
    case 'I': end_slot(s, DIED_INTERRUPTED); send_ack(id, 0, 0); break;
    case 'C': close_slot(s); send_ack(id, 0, 0); break;
    }
}

void handle_frame(char type, char *payload, size_t length) {
    uint32_t id, ms;
    if (length < 4) leave(BYE_PROTOCOL);
    memcpy(&id, payload, 4);
    char *p = payload + 4;
    size_t n = length - 4;
    if (type == 'N') { handle_heard(p, n); return; }
    if (type == 'Y') { handle_sync(id, p, n); return; }
    if (id <= last_id) return;
    last_id = id;
    switch (type) {
    case 'R': case 'P': case 'T': case 'Z': case 'I': case 'C': handle_slot_frame(type, id, p, n); break;
    case 'W': handle_write(id, p, n); break;
    case 'F': handle_read(id, p, n); break;
    case 'K': kill_all(id); break;
    case 'X': kill_tests(id); break;
    case 'G': start_child(id, p, n); break;
    case 'M': handle_private_folders(id, p, n); break;
    case 'U': handle_agent_user(id, p, n); break;
    case 'Q': leave(BYE_QUIT); break;
    case 'D':
        if (n != 4) leave(BYE_PROTOCOL);
        memcpy(&ms, p, 4);
        extend(id, ms);
        break;
    default: leave(BYE_PROTOCOL);
    }
}

enum { STDIN, SIGNALS, STDOUT, CHILD, FIXED };

static int fill(struct pollfd *p, int stdin_fd, int signals) {
    int room = out_has_room(), n = FIXED;
    p[STDIN] = (struct pollfd){stdin_fd, POLLIN, 0};
    p[SIGNALS] = (struct pollfd){signals, POLLIN, 0};
    p[STDOUT] = (struct pollfd){out_queued() ? 1 : -1, POLLOUT, 0};
    p[CHILD] = (struct pollfd){room ? child.fd : -1, POLLIN, 0};
    for (struct slot *s = slots; s < slots + SLOTS; s++, n++) {
        int typing = s->input != NULL, quiet = s->kind == FREE || s->hung;
        p[n] = (struct pollfd){quiet || !(room || typing) ? -1 : s->output_fd, (short)(room ? POLLIN : 0), 0};
        if (typing) p[n].events |= POLLOUT;
    }
    return n;
}

static void serve(struct pollfd *p) {
    if (p[CHILD].revents) read_child();
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &slots[i];
        struct pollfd *q = p + FIXED + i;
        if (q->revents & (POLLIN | POLLHUP | POLLERR) && s->output_fd == q->fd) read_output(s);
        if (q->revents & POLLOUT && s->input) push_input(s);
    }
}

/* A child has died, stopped or continued; which, the signal does not tell reliably. */
static void handle_signal(int signals) {
    struct signalfd_siginfo last;
    read(signals, &last, sizeof last);
    reap();
    end_commands();
}

/* Default variables of a shell that neither its image nor its task sets. */
static const char *const defaults[][2] = {
    {"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    {"HOME", "/root"}, {"LANG", "C.UTF-8"}, {"TERM", "dumb"}, {"PAGER", "cat"},
};

/* Names in a container without a network, for which the daemon writes no hosts file: `localhost` and its own. */
static void name_loopback(void) {
    char name[256] = "", table[512];
    struct stat st;
    int fd = open("/etc/hosts", O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    gethostname(name, sizeof name - 1);
    int n = snprintf(table, sizeof table,
                     "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n", name);
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !st.st_size) write(fd, table, (size_t)n);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "links") == 0) return remove_links(argc - 2, argv + 2);
    if (argc != 5 || !take_key(argv[4])) return 2;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "sbx-init");
    setresgid((gid_t)-1, (gid_t)-1, OTHER_GROUP);
    maximum_ms = now_ms() + strtoull(argv[2], NULL, 10);
    deadline_ms = now_ms() + strtoull(argv[1], NULL, 10);
    if (deadline_ms > maximum_ms) deadline_ms = maximum_ms;

    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_SETMASK, &child, NULL);
    for (int each = 1; each < NSIG; each++)
        if (each != SIGCHLD) signal(each, SIG_IGN);
    int signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) return 2;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) setenv(defaults[i][0], defaults[i][1], 0);
    umask(022);
    if (getpid() == 1) name_loopback();
    make_parents(argv[3]);
    mkdir(argv[3], 0755);
    fcntl(1, F_SETFL, O_NONBLOCK);

    uint8_t hello = PROTOCOL;
    send_frame('H', &hello, 1);
    if (slots_begin(argv[3]) < 0) return 2;

    int stdin_fd = 0;
    for (;;) {
        flush_out();
        uint32_t left = remaining_ms();
        if (!left) leave(BYE_DEADLINE);
        struct pollfd p[FIXED + SLOTS];
        int n = fill(p, stdin_fd, signals);
        if (poll(p, (nfds_t)n, left > 3600000 ? 3600000 : (int)left + 1) < 0) continue;
        serve(p);
        if (p[SIGNALS].revents) handle_signal(signals);
        if (p[STDIN].revents && !read_frames()) stdin_fd = -1;
        if (await_end(signals)) handle_signal(signals);
    }
}
