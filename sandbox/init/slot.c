/*
 * Shells and terminals, each in a slot with its own streams.
 *
 * A shell is one bash that evaluates commands one after another; a terminal is one process on a pseudo-terminal.  The
 * command pipe and the status pipe of a shell are closed for the commands' own code.
 */
#include "init.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { COMMAND_FD = 3, STATUS_FD = 4, INPUT_MOST = 1 << 20, DRAIN_MOST = 256 << 10, SOON_NS = 200000, FEW = 4 << 10 };

/* The command is read completely, then evaluated with both pipes closed; its status and directory return separately. */
static const char SHELL_LOOP[] =
    "while IFS= read -r -d '' -u 3 __c; do eval \"$__c\" 3<&- 4>&-; printf '%d %s\\0' \"$?\" \"$PWD\" >&4; done";

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
    s->output_fd = s->output_write_fd = s->command_fd = s->status_fd = s->spool.fd = -1;
    memcpy(s->cwd, first_directory, sizeof s->cwd);
}

static int null_fd; /* opened before any process could replace the file */

int slots_begin(const char *workdir) {
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0) return -1;
    snprintf(first_directory, sizeof first_directory, "%s", workdir);
    for (int i = 0; i < SLOTS; i++) make_free(&slots[i]);
    slots[MAIN_SLOT].kind = SHELL;
    open_shell(&slots[MAIN_SLOT]);
    return 0;
}

static uint16_t number(const struct slot *s) { return (uint16_t)(s - slots); }

static uint64_t ticks_now(void) { return now_ns() / (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK)); }

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
static void drain(struct slot *s) {
    int left = DRAIN_MOST;
    if (s->output_fd < 0 || (s->kind == SHELL && ioctl(s->output_fd, FIONREAD, &left) < 0)) return;
    while (left > 0) {
        ssize_t n = forward(s, (size_t)left);
        if (n <= 0) return;
        left -= (int)n;
    }
}

static void forget_input(struct slot *s) {
    free(s->input);
    s->input = NULL;
    s->input_length = s->input_sent = 0;
}

static void forget_process(struct slot *s) {
    s->pid = 0;
    s->pending = 0;
    close_fd(&s->command_fd);
    close_fd(&s->status_fd);
    forget_input(s);
    s->status_length = 0;
}

int open_shell(struct slot *s) {
    int command[2], status[2], output[2];
    if (has_private_folders()) { errno = EBUSY; return -1; }
    if (s->output_fd < 0) {
        if (pipe2(output, O_CLOEXEC) < 0) return -1;
        fcntl(output[0], F_SETFL, O_NONBLOCK);
        s->output_fd = output[0], s->output_write_fd = output[1];
    }
    if (pipe2(command, O_CLOEXEC) < 0) return -1;
    if (pipe2(status, O_CLOEXEC) < 0) {
        close(command[0]), close(command[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become_ordinary(OF_AGENT, agent_user(), -1, s->output_write_fd);
        int c = fcntl(command[0], F_DUPFD_CLOEXEC, 200), t = fcntl(status[1], F_DUPFD_CLOEXEC, 200);
        dup2(c, COMMAND_FD);
        dup2(t, STATUS_FD);
        if (chdir(s->cwd) < 0 && chdir("/") < 0) _exit(127);
        execlp("bash", "bash", "--noprofile", "--norc", "-c", SHELL_LOOP, (char *)NULL);
        _exit(127);
    }
    close(command[0]), close(status[1]);
    if (pid < 0) {
        close(command[1]), close(status[0]);
        return -1;
    }
    fcntl(command[1], F_SETFL, O_NONBLOCK);
    fcntl(status[0], F_SETFL, O_NONBLOCK);
    s->pid = pid, s->command_fd = command[1], s->status_fd = status[0];
    s->died_because = DIED_BY_ITSELF;
    return 0;
}

/* Replace each shell that runs no command by a new one in the same directory, without telling the client. */
int restart_idle_shells(void) {
    int failed = 0;
    for (struct slot *s = slots; s < slots + SLOTS; s++) {
        if (s->kind != SHELL || !s->pid || s->pending) continue;
        kill(s->pid, SIGKILL);
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {}
        forget_process(s);
        failed |= open_shell(s);
    }
    return failed;
}

/* The master is opened by name, the other end by the kernel: the agent's changes to /dev/pts do not matter. */
static int open_pair(struct slot *s, uint16_t rows, uint16_t columns) {
    struct winsize size = {rows, columns, 0, 0};
    int locked = 0;
    s->output_fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (s->output_fd < 0) return -1;
    int other = -1;
    if (ioctl(s->output_fd, TIOCSPTLCK, &locked) == 0 && ioctl(s->output_fd, TIOCSWINSZ, &size) == 0)
        other = ioctl(s->output_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (other < 0) close_fd(&s->output_fd);
    return other;
}

void open_terminal(uint32_t id, struct slot *s, uint16_t rows, uint16_t columns, char **argv, char **envp, char *cwd) {
    errno = EBUSY;
    int other = has_private_folders() ? -1 : open_pair(s, rows, columns);
    if (other < 0) { send_ack(id, errno, 0); spool_end(&s->spool); return; }
    pid_t pid = fork();
    if (pid == 0) {
        become_ordinary(OF_AGENT, agent_user(), other, other);
        ioctl(0, TIOCSCTTY, 0);
        if (chdir(cwd) < 0 && chdir("/") < 0) _exit(127);
        for (; *envp; envp++) putenv(*envp);
        execvp(argv[0], argv);
        _exit(127);
    }
    int failed = errno;
    close(other);
    if (pid < 0) {
        close_fd(&s->output_fd);
        spool_end(&s->spool);
        send_ack(id, failed, 0);
        return;
    }
    s->kind = TERMINAL, s->pid = pid, s->pending = 1, s->hung = 0, s->id = id, s->ticks = ticks_now();
    s->died_because = DIED_BY_ITSELF;
    snprintf(s->cwd, sizeof s->cwd, "%s", cwd);
    send_ack(id, 0, 0);
}

static void send_exit(struct slot *s, uint32_t id, int32_t code, uint8_t because) {
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

/* ---- commands, keys and what comes back ---- */

void push_input(struct slot *s) {
    int to = s->kind == TERMINAL ? s->output_fd : s->command_fd;
    while (s->input_sent < s->input_length) {
        ssize_t n = write(to, s->input + s->input_sent, s->input_length - s->input_sent);
        if (n <= 0) return; /* full: poll says when; broken: the process's death says so */
        s->input_sent += (size_t)n;
    }
    forget_input(s);
}

static int add_input(struct slot *s, const char *data, size_t length) {
    size_t left = s->input_length - s->input_sent;
    if (left + length > INPUT_MOST + 1) return ENOBUFS;
    char *grown = malloc(left + length + 1);
    if (!grown) return ENOMEM;
    if (left) memcpy(grown, s->input + s->input_sent, left);
    memcpy(grown + left, data, length);
    forget_input(s);
    s->input = grown, s->input_length = left + length;
    return 0;
}

void run_command(uint32_t id, struct slot *s, const char *command, size_t length) {
    int failed = 0;
    s->kind = SHELL;
    if (!s->pid && open_shell(s) < 0) {
        send_exit(s, id, -errno, DIED_NO_FORK);
        spool_end(&s->spool);
        return;
    }
    if ((failed = add_input(s, command, length)) || (failed = add_input(s, "", 1))) {
        forget_input(s);
        send_exit(s, id, -failed, DIED_NO_FORK);
        return;
    }
    s->pending = 1, s->id = id, s->ticks = ticks_now();
    push_input(s);
}

void type_into(uint32_t id, struct slot *s, const char *data, size_t length) {
    int failed = s->kind == TERMINAL && s->pid ? add_input(s, data, length) : ESRCH;
    if (!failed) push_input(s), s->hung = 0; /* if nobody holds it open, the next read says so again */
    send_ack(id, failed, 0);
}

void resize(uint32_t id, struct slot *s, uint16_t rows, uint16_t columns) {
    struct winsize size = {rows, columns, 0, 0};
    if (s->kind != TERMINAL) send_ack(id, ESRCH, 0);
    else send_ack(id, ioctl(s->output_fd, TIOCSWINSZ, &size) < 0 ? errno : 0, 0);
}

/* Returns 0 when the shell had to go. */
static int one_status(struct slot *s, char *text) {
    char *end;
    long code = strtol(text, &end, 10);
    if (!s->pending || end == text || *end != ' ' || end[1] != '/') {
        end_slot(s, DIED_SPURIOUS_STATUS);
        return 0;
    }
    snprintf(s->cwd, sizeof s->cwd, "%s", end + 1);
    s->pending = 0, s->code = (int32_t)code;
    drain(s);
    char b[14 + sizeof s->cwd];
    uint16_t which = number(s);
    size_t length = strlen(s->cwd);
    memcpy(b, &which, 2), memcpy(b + 2, &s->id, 4), memcpy(b + 6, &s->code, 4), memcpy(b + 10, &s->spool.saved, 4);
    memcpy(b + 14, s->cwd, length);
    send_frame('S', b, 14 + length);
    spool_end(&s->spool);
    return 1;
}

void read_status(struct slot *s) {
    ssize_t n = read(s->status_fd, s->status + s->status_length, sizeof s->status - s->status_length);
    if (n < 0) return;
    if (n == 0) { close_fd(&s->status_fd); return; }
    s->status_length += (size_t)n;
    for (char *end; (end = memchr(s->status, 0, s->status_length));) {
        if (!one_status(s, s->status)) return;
        size_t used = (size_t)(end - s->status) + 1;
        memmove(s->status, s->status + used, s->status_length - used);
        s->status_length -= used;
    }
    if (s->status_length == sizeof s->status) end_slot(s, DIED_SPURIOUS_STATUS);
}

/* Output right before a command's end is sent together with its end, to pass the engine once instead of twice. */
void await_status(void) {
    struct slot *spoke[SLOTS];
    struct pollfd p[SLOTS];
    nfds_t n = 0;
    for (struct slot *s = slots; s < slots + SLOTS; s++) {
        if (s->spoke && s->pending && s->status_fd >= 0) {
            spoke[n] = s;
            p[n++] = (struct pollfd){s->status_fd, POLLIN, 0};
        }
        s->spoke = 0;
    }
    struct timespec soon = {0, SOON_NS};
    if (n == 0 || out_queued() > FEW || ppoll(p, n, &soon, NULL) <= 0) return;
    for (nfds_t i = 0; i < n; i++)
        if (p[i].revents) read_status(spoke[i]);
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
