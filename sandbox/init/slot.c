/* Shells (shell.c) and terminals (terminal.c), each in a slot with its own streams. */
#include "init.h"
#include <sys/ioctl.h>

enum { DRAIN_MOST = 256 << 10 };

struct slot slots[SLOTS];
static char first_directory[PATH_MOST];

void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

int32_t exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

static void make_free(struct slot *s) {
    s->kind = FREE;
    s->pid = 0;
    s->pending = s->hung = s->spoke = 0;
    s->id = 0, s->code = 0, s->ticks = 0;
    s->output_fd = s->output_write_fd = s->unused_terminal_fd = s->spool.fd = -1;
    memcpy(s->cwd, first_directory, sizeof s->cwd);
}

int null_fd; /* opened before any process could replace the file */

int slots_begin(const char *workdir) {
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0) return -1;
    snprintf(first_directory, sizeof first_directory, "%s", workdir);
    for (int i = 0; i < SLOTS; i++) make_free(&slots[i]);
    slots[MAIN_SLOT].kind = SHELL;
    open_shell(&slots[MAIN_SLOT]);
    return 0;
}

uint16_t number(const struct slot *s) { return (uint16_t)(s - slots); }

uint64_t ticks_now(void) { return now_ns() / (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK)); }

/* In a child: restore default signals, start a session, become the first choice of the OOM killer, and close PID 1's
   streams.  It becomes dumpable only by its exec: until then it has PID 1's descriptors and memory. */
void become_ordinary(enum whose whose, const struct user *user, int in, int out) {
    if (dup2(in < 0 ? null_fd : in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(127);
    for (int each = 1; each < NSIG; each++) signal(each, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        if (write(score, "500", 3) != 3) { /* only a preference */ }
        close(score);
    }
    guard_pid_1(user->uid != 0);
    drop_capabilities(whose);
    become_user(whose, user, out);
}

/* One read of output into a frame.  Returns what read() returned. */
static ssize_t forward(struct slot *s, size_t most) {
    char *at = reserve(2 + CHUNK);
    if (!at) return -1;
    ssize_t n = read(s->output_fd, at + 2, most < CHUNK ? most : CHUNK);
    if (n > 0) {
        uint16_t which = number(s);
        memcpy(at, &which, 2);
        commit(at, 'O', 2 + (size_t)n);
        spool_feed(&s->spool, at + 2, (size_t)n);
    }
    return n;
}

void read_output(struct slot *s) {
    ssize_t n = forward(s, CHUNK);
    s->spoke = n > 0 && s->kind == SHELL;
    if (s->kind == TERMINAL && (n == 0 || (n < 0 && errno == EIO))) s->hung = 1;
}

/* Forward the output that exists now, but not what a background process keeps adding to it. */
void drain(struct slot *s) {
    int left = DRAIN_MOST;
    if (s->output_fd < 0 || (s->kind == SHELL && ioctl(s->output_fd, FIONREAD, &left) < 0)) return;
    while (left > 0) {
        ssize_t n = forward(s, (size_t)left);
        if (n <= 0) return;
        left -= (int)n;
    }
}

void forget_input(struct slot *s) {
    free(s->input);
    s->input = NULL;
    s->input_length = s->input_sent = 0;
}

void forget_process(struct slot *s) {
    s->pid = 0;
    s->pending = 0;
    forget_shell(s);
    forget_input(s);
}

void send_exit(struct slot *s, uint32_t id, int32_t code, uint8_t because) {
    char b[15];
    uint16_t which = number(s);
    memcpy(b, &which, 2), memcpy(b + 2, &id, 4), memcpy(b + 6, &code, 4), memcpy(b + 10, &s->spool.saved, 4);
    b[14] = (char)because;
    send_frame('X', b, sizeof b);
}

void slot_died(struct slot *s, int status) {
    drain(s);
    s->code = exit_code(status);
    send_exit(s, s->pending ? s->id : 0, s->code, (uint8_t)s->died_because);
    spool_end(&s->spool);
    forget_process(s);
    if (s->kind == TERMINAL) close_slot(s);
}

void close_slot(struct slot *s) {
    if (s->pid) end_slot(s, DIED_INTERRUPTED);
    forget_process(s);
    spool_end(&s->spool);
    close_fd(&s->output_fd);
    close_fd(&s->output_write_fd);
    make_free(s);
}

/* Report to a new client what every slot runs and how its last command ended. */
void tell_slots(void) {
    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &slots[i];
        char b[12 + sizeof s->cwd];
        uint16_t which = number(s);
        size_t length = strlen(s->cwd);
        if (s->kind == FREE) continue;
        memcpy(b, &which, 2), b[2] = (char)s->kind, b[3] = (char)s->pending;
        memcpy(b + 4, &s->id, 4), memcpy(b + 8, &s->code, 4), memcpy(b + 12, s->cwd, length);
        send_frame('V', b, 12 + length);
    }
}
