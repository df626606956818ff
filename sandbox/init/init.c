/*
 * sbx-init: PID 1 of a sandbox.
 *
 * It owns the agent's one persistent bash and answers typed, length-prefixed frames on its attach stream (stdin and
 * stdout of the container).  What holds, whatever runs beside it in the container:
 *
 *   - No output can pass for a frame: commands, statuses and output have pipes of their own, and this process is not
 *     dumpable, so that root inside (without CAP_SYS_PTRACE) can open neither its descriptors nor its memory.
 *   - No signal from inside moves it: all are blocked and read through a signalfd.  Orphans are reaped.
 *   - It ends at a deadline (CLOCK_BOOTTIME) that only a frame can extend, never past the maximum: the container goes
 *     even when everyone who knew of it is dead.  EOF on stdin only means that no extension will come.  Standard
 *     output is never written blockingly, so a client that stops reading cannot hold the deadline up.
 *   - KILL_ALL answers 0 only when no other process exists in the PID namespace.
 *
 * An agent can lie about the exit code of a command of its own, in its own shell.  Nothing that counts reads it.
 *
 * A frame is: type u8, length u32 LE, payload.  sandbox/wire.py is the other end and names every type.
 * Arguments: first deadline (ms), maximum (ms), working directory.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROTOCOL = 1, HEADER = 5, MAX_FRAME = 1 << 20, OUT_CAPACITY = 4 << 20, OUT_HIGH_WATER = 256 << 10, CHUNK = 64 << 10 };
enum { KILL_ALL_LIMIT_MS = 5000, INTERRUPT_PASSES = 50, INTERRUPT_WAITS = 5000 };
enum { WRITE_APPEND = 1, WRITE_REPLACE = 2 };
enum { DIED_BY_ITSELF = 0, DIED_INTERRUPTED = 1, DIED_SPURIOUS_STATUS = 2, DIED_NO_FORK = 3 };
enum { BYE_QUIT = 0, BYE_DEADLINE = 1, BYE_PROTOCOL = 2 };
enum { COMMAND_FD = 3, STATUS_FD = 4 };

/* The command is read whole, then evaluated with both pipes closed; its status and directory go back apart. */
static const char SHELL_LOOP[] =
    "while IFS= read -r -d '' -u 3 __c; do eval \"$__c\" 3<&- 4>&-; printf '%d %s\\0' $? \"$PWD\" >&4; done";

static uint64_t deadline_ms, maximum_ms;

static char in[HEADER + MAX_FRAME];
static size_t in_length;

static char out[OUT_CAPACITY];
static size_t out_start, out_end;

static int output_pipe[2]; /* shared by every shell of this container, so that old background jobs keep a reader */

static struct {
    pid_t pid;              /* 0: none */
    int command_fd, status_fd;
    char cwd[4096];         /* where the last status left it, or where the next shell starts */
    char status[8192];
    size_t status_length;
    char *command;          /* bytes not yet taken by the command pipe */
    size_t command_left, command_sent;
    int pending;            /* a command has been given and has no status yet */
    uint32_t command_id;
    uint64_t command_ticks; /* when it was given, in the unit of /proc/PID/stat */
    int died_because;
} shell = {.command_fd = -1, .status_fd = -1};

static struct {
    pid_t pid;
    int fd;
    uint32_t id;
} grade = {.fd = -1};

/* ---- time ---- */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ms(void) { return now_ns() / 1000000u; }

static void pause_us(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

/* ---- frames out ---- */

static void flush_out(void) {
    while (out_start < out_end) {
        ssize_t n = write(1, out + out_start, out_end - out_start);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return;
        out_start += (size_t)n;
    }
    out_start = out_end = 0;
}

static size_t out_queued(void) { return out_end - out_start; }

static char *reserve(size_t n) {
    if (OUT_CAPACITY - out_end < n) {
        memmove(out, out + out_start, out_queued());
        out_end -= out_start;
        out_start = 0;
    }
    return OUT_CAPACITY - out_end < n ? NULL : out + out_end;
}

static void put_header(char *at, char type, size_t length) {
    uint32_t n = (uint32_t)length;
    at[0] = type;
    memcpy(at + 1, &n, 4);
}

static void send_frame(char type, const void *payload, size_t length) {
    char *at = reserve(HEADER + length);
    if (!at) return; /* the client has not read for megabytes of control frames: the deadline ends this */
    put_header(at, type, length);
    memcpy(at + HEADER, payload, length);
    out_end += HEADER + length;
}

static void send_ack(uint32_t id, int32_t error, uint32_t value) {
    char b[12];
    memcpy(b, &id, 4), memcpy(b + 4, &error, 4), memcpy(b + 8, &value, 4);
    send_frame('A', b, sizeof b);
}

static void send_exit(char type, uint32_t id, int32_t code, uint8_t detail) {
    char b[9];
    memcpy(b, &id, 4), memcpy(b + 4, &code, 4), b[8] = (char)detail;
    send_frame(type, b, sizeof b);
}

static void leave(uint8_t reason) {
    send_frame('B', &reason, 1);
    flush_out();
    _exit(0);
}

/* One read from a pipe into a frame of the given type.  Returns what read() returned. */
static ssize_t forward(int fd, char type, size_t most) {
    char *at = reserve(HEADER + CHUNK);
    if (!at) return -1;
    ssize_t n = read(fd, at + HEADER, most < CHUNK ? most : CHUNK);
    if (n > 0) {
        put_header(at, type, (size_t)n);
        out_end += HEADER + (size_t)n;
    }
    return n;
}

/* Forward what is in the pipe at this moment, and not what a background process goes on adding to it. */
static void drain(int fd, char type) {
    int left = 0;
    if (fd < 0 || ioctl(fd, FIONREAD, &left) < 0) return;
    while (left > 0) {
        ssize_t n = forward(fd, type, (size_t)left);
        if (n <= 0) return;
        left -= (int)n;
    }
}

/* ---- processes ---- */

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int32_t exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

/* In a child: ordinary signals, a session of its own, /dev/null as input, the first choice of the OOM killer. */
static void become_ordinary(int stdout_fd) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_DUMPABLE, 1);
    setsid();
    int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score >= 0) {
        if (write(score, "500", 3) != 3) { /* only a preference */ }
        close(score);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(null, 0);
    dup2(stdout_fd, 1);
    dup2(stdout_fd, 2);
}

static void forget_shell(void) {
    shell.pid = 0;
    close_fd(&shell.command_fd);
    close_fd(&shell.status_fd);
    free(shell.command);
    shell.command = NULL;
    shell.command_left = shell.command_sent = shell.status_length = 0;
}

static int open_shell(void) {
    int command[2], status[2];
    if (pipe2(command, O_CLOEXEC) < 0) return -1;
    if (pipe2(status, O_CLOEXEC) < 0) {
        close(command[0]), close(command[1]);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become_ordinary(output_pipe[1]);
        int c = fcntl(command[0], F_DUPFD_CLOEXEC, 60), s = fcntl(status[1], F_DUPFD_CLOEXEC, 61);
        dup2(c, COMMAND_FD);
        dup2(s, STATUS_FD);
        if (chdir(shell.cwd) < 0 && chdir("/") < 0) _exit(127);
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
    shell.pid = pid, shell.command_fd = command[1], shell.status_fd = status[0];
    shell.died_because = DIED_BY_ITSELF;
    return 0;
}

static void shell_died(int status) {
    drain(output_pipe[0], 'O');
    send_exit('X', shell.pending ? shell.command_id : 0, exit_code(status), (uint8_t)shell.died_because);
    shell.pending = 0;
    forget_shell();
}

static void grade_ended(int status) {
    drain(grade.fd, 'g');
    close_fd(&grade.fd);
    send_exit('E', grade.id, exit_code(status), WIFSIGNALED(status) ? 1 : 0);
    grade.pid = 0;
}

static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == shell.pid) shell_died(status);
        else if (pid == grade.pid) grade_ended(status);
    }
}

/* Kill and reap until this is the only process of the namespace.  fork() fails while a signal is pending, so a fork
   bomb cannot outrun kill(-1).  ESRCH also covers processes that came in from outside, which are not our children. */
static void kill_all(uint32_t id) {
    uint64_t give_up = now_ms() + KILL_ALL_LIMIT_MS;
    uint32_t reaped = 0;
    for (;;) {
        int alone = kill(-1, SIGKILL) < 0 && errno == ESRCH;
        int childless = 0;
        for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) != 0;) {
            if (pid > 0) reaped++;
            else if (errno == ECHILD) { childless = 1; break; }
        }
        if (alone && childless) break;
        if (now_ms() > give_up) { send_ack(id, ETIMEDOUT, reaped); return; }
        pause_us(300);
    }
    drain(output_pipe[0], 'O');
    forget_shell();
    shell.pending = 0;
    grade.pid = 0;
    close_fd(&grade.fd);
    send_ack(id, 0, reaped);
}

struct process {
    pid_t pid, parent;
    uint64_t started;
    int dead, doomed;
};

static int read_processes(struct process *found, int most) {
    DIR *proc = opendir("/proc");
    int n = 0;
    if (!proc) return 0;
    for (struct dirent *e; n < most && (e = readdir(proc));) {
        char path[64], line[1024];
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid <= 1) continue;
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t k = read(fd, line, sizeof line - 1);
        close(fd);
        if (k <= 0) continue;
        line[k] = 0;
        char *after_name = strrchr(line, ')');
        static const char FIELDS[] =
            " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
        char state;
        int parent;
        unsigned long long started;
        if (!after_name || sscanf(after_name + 1, FIELDS, &state, &parent, &started) != 3) continue;
        found[n++] = (struct process){pid, parent, started, state == 'Z' || state == 'X', 0};
    }
    closedir(proc);
    return n;
}

/* Kill what the running command started, and leave background jobs of earlier commands alone: a process is doomed when
   it began after the command did and its parent is the shell, doomed, or gone (then we are the parent).  Returns how
   many were alive. */
static int kill_command_once(void) {
    static struct process all[4096];
    int n = read_processes(all, 4096), alive = 0, changed = 1;
    while (changed) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            if (all[i].doomed || all[i].pid == shell.pid || all[i].started < shell.command_ticks) continue;
            int under = all[i].parent == shell.pid || all[i].parent == 1;
            for (int j = 0; j < n && !under; j++) under = all[j].doomed && all[j].pid == all[i].parent;
            if (under) all[i].doomed = changed = 1;
        }
    }
    for (int i = 0; i < n; i++)
        if (all[i].doomed && !all[i].dead) kill(all[i].pid, SIGKILL), alive++;
    return alive;
}

/* Kill the shell and what its command runs; its death has been reported when this returns. */
static void end_shell(int because) {
    char path[64], cwd[sizeof shell.cwd];
    int status = 0;
    if (!shell.pid) return;
    shell.died_because = because;
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)shell.pid);
    ssize_t n = readlink(path, cwd, sizeof cwd - 1);
    if (n > 0) {
        cwd[n] = 0;
        memcpy(shell.cwd, cwd, (size_t)n + 1);
    }
    kill(shell.pid, SIGSTOP); /* so that it starts nothing while its children are looked up */
    for (int pass = 0; shell.pending && pass < INTERRUPT_PASSES && kill_command_once(); pass++) pause_us(200);
    kill(shell.pid, SIGKILL);
    for (int i = 0; i < INTERRUPT_WAITS && waitpid(shell.pid, &status, WNOHANG) == 0; i++) pause_us(200);
    shell_died(status);
}

/* ---- what the shell says ---- */

static void push_command(void) {
    while (shell.command_sent < shell.command_left) {
        ssize_t n = write(shell.command_fd, shell.command + shell.command_sent, shell.command_left - shell.command_sent);
        if (n <= 0) return; /* full: poll says when; broken: the shell's death says so */
        shell.command_sent += (size_t)n;
    }
    free(shell.command);
    shell.command = NULL;
    shell.command_left = shell.command_sent = 0;
}

/* Returns 0 when the shell had to go. */
static int one_status(char *text) {
    char *end;
    long code = strtol(text, &end, 10);
    if (!shell.pending || end == text || *end != ' ' || end[1] != '/') {
        end_shell(DIED_SPURIOUS_STATUS);
        return 0;
    }
    snprintf(shell.cwd, sizeof shell.cwd, "%s", end + 1);
    shell.pending = 0;
    drain(output_pipe[0], 'O');
    char b[8 + sizeof shell.cwd];
    int32_t code32 = (int32_t)code;
    size_t length = strlen(shell.cwd);
    memcpy(b, &shell.command_id, 4), memcpy(b + 4, &code32, 4), memcpy(b + 8, shell.cwd, length);
    send_frame('S', b, 8 + length);
    return 1;
}

static void read_status(void) {
    ssize_t n = read(shell.status_fd, shell.status + shell.status_length, sizeof shell.status - shell.status_length);
    if (n < 0) return;
    if (n == 0) { close_fd(&shell.status_fd); return; }
    shell.status_length += (size_t)n;
    for (char *end; (end = memchr(shell.status, 0, shell.status_length));) {
        if (!one_status(shell.status)) return;
        size_t used = (size_t)(end - shell.status) + 1;
        memmove(shell.status, shell.status + used, shell.status_length - used);
        shell.status_length -= used;
    }
    if (shell.status_length == sizeof shell.status) end_shell(DIED_SPURIOUS_STATUS);
}

/* ---- frames in ---- */

static void run_command(uint32_t id, const char *command, size_t length) {
    if (shell.pending) { send_ack(id, EBUSY, 0); return; }
    if (!shell.pid && open_shell() < 0) { send_exit('X', id, -errno, DIED_NO_FORK); return; }
    shell.command = malloc(length + 1);
    if (!shell.command) { send_ack(id, ENOMEM, 0); return; }
    memcpy(shell.command, command, length);
    shell.command[length] = 0;
    shell.command_left = length + 1, shell.command_sent = 0;
    shell.pending = 1, shell.command_id = id;
    shell.command_ticks = now_ns() / (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    push_command();
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *walk) {
    (void)s, (void)kind, (void)walk;
    return remove(path) < 0 ? errno : 0;
}

/* Remove whatever stands there, without following links. */
static int remove_tree(const char *path) {
    struct stat s;
    if (lstat(path, &s) < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
    if (!S_ISDIR(s.st_mode)) return unlink(path) < 0 ? errno : 0;
    int failed = nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    return failed < 0 ? errno : failed;
}

static void make_parents(char *path) {
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0755); /* what cannot be made shows when the file is opened */
        *p = '/';
    }
}

/* A path that ends in '/' is a directory. */
static int write_file(char *path, uint32_t mode, int flags, const char *data, size_t length) {
    size_t path_length = strlen(path);
    if (!path_length || path[0] != '/') return EINVAL;
    int directory = path_length > 1 && path[path_length - 1] == '/';
    if (directory) path[path_length - 1] = 0;
    if (flags & WRITE_REPLACE) {
        int failed = remove_tree(path);
        if (failed) return failed;
    }
    make_parents(path);
    if (directory) return mkdir(path, mode) < 0 && errno != EEXIST ? errno : 0;
    int how = flags & WRITE_APPEND ? O_APPEND : flags & WRITE_REPLACE ? O_CREAT | O_EXCL : O_CREAT | O_TRUNC;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | how, mode);
    if (fd < 0) return errno;
    int failed = 0;
    if (!(flags & WRITE_APPEND)) fchmod(fd, mode);
    while (length && !failed) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno != EINTR) failed = errno;
        if (n > 0) data += n, length -= (size_t)n;
    }
    if (close(fd) < 0 && !failed) failed = errno;
    return failed;
}

static void handle_write(uint32_t id, const char *p, size_t n) {
    uint32_t mode;
    uint16_t path_length;
    char path[4097];
    if (n < 7) leave(BYE_PROTOCOL);
    memcpy(&mode, p, 4), memcpy(&path_length, p + 5, 2);
    if (path_length > 4096 || 7u + path_length > n) leave(BYE_PROTOCOL);
    memcpy(path, p + 7, path_length);
    path[path_length] = 0;
    send_ack(id, write_file(path, mode, p[4], p + 7 + path_length, n - 7 - path_length), 0);
}

/* argc u16, envc u16, then NUL-ended strings: directory, arguments, environment. */
static void start_grade(uint32_t id, char *p, size_t n) {
    uint16_t argc, envc;
    enum { MOST = 256 };
    char *argv[MOST + 1] = {0}, *envp[MOST + 1] = {0}, *cwd = NULL;
    if (n < 5 || p[n - 1] != 0) leave(BYE_PROTOCOL);
    memcpy(&argc, p, 2), memcpy(&envc, p + 2, 2);
    char *at = p + 4, *end = p + n;
    if (argc < 1 || argc > MOST || envc > MOST) leave(BYE_PROTOCOL);
    for (int i = 0; i < 1 + argc + envc; i++) {
        if (at >= end) leave(BYE_PROTOCOL);
        if (i == 0) cwd = at;
        else if (i <= argc) argv[i - 1] = at;
        else envp[i - 1 - argc] = at;
        at += strlen(at) + 1;
    }
    int pipe_[2];
    if (grade.pid || pipe2(pipe_, O_CLOEXEC) < 0) { send_ack(id, grade.pid ? EBUSY : errno, 0); return; }
    pid_t pid = fork();
    if (pid == 0) {
        become_ordinary(pipe_[1]);
        if (chdir(cwd) < 0 && chdir("/") < 0) _exit(127);
        execve(argv[0], argv, envp);
        _exit(127);
    }
    close(pipe_[1]);
    if (pid < 0) {
        close(pipe_[0]);
        send_ack(id, EAGAIN, 0);
        return;
    }
    fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    grade.pid = pid, grade.fd = pipe_[0], grade.id = id;
}

static void extend(uint32_t id, uint32_t ms) {
    uint64_t now = now_ms();
    deadline_ms = now + ms < maximum_ms ? now + ms : maximum_ms;
    send_ack(id, 0, deadline_ms > now ? (uint32_t)(deadline_ms - now) : 0);
}

static void handle_frame(char type, char *payload, size_t length) {
    uint32_t id, ms;
    if (length < 4) leave(BYE_PROTOCOL);
    memcpy(&id, payload, 4);
    char *p = payload + 4;
    size_t n = length - 4;
    switch (type) {
    case 'R': run_command(id, p, n); break;
    case 'W': handle_write(id, p, n); break;
    case 'I': end_shell(DIED_INTERRUPTED); send_ack(id, 0, 0); break;
    case 'K': kill_all(id); break;
    case 'G': start_grade(id, p, n); break;
    case 'Q': leave(BYE_QUIT); break;
    case 'D':
        if (n != 4) leave(BYE_PROTOCOL);
        memcpy(&ms, p, 4);
        extend(id, ms);
        break;
    default: leave(BYE_PROTOCOL);
    }
}

/* Returns 0 at EOF. */
static int read_frames(void) {
    ssize_t n = read(0, in + in_length, sizeof in - in_length);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return 0;
    in_length += (size_t)n;
    size_t at = 0;
    while (in_length - at >= HEADER) {
        uint32_t length;
        memcpy(&length, in + at + 1, 4);
        if (length > MAX_FRAME) leave(BYE_PROTOCOL);
        if (in_length - at < HEADER + length) break;
        handle_frame(in[at], in + at + HEADER, length);
        at += HEADER + length;
    }
    memmove(in, in + at, in_length - at);
    in_length -= at;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_NAME, "sbx-init");
    maximum_ms = now_ms() + strtoull(argv[2], NULL, 10);
    deadline_ms = now_ms() + strtoull(argv[1], NULL, 10);
    if (deadline_ms > maximum_ms) deadline_ms = maximum_ms;

    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    umask(022);
    snprintf(shell.cwd, sizeof shell.cwd, "%s", argv[3]);
    make_parents(shell.cwd);
    mkdir(shell.cwd, 0755);
    if (signals < 0 || pipe2(output_pipe, O_CLOEXEC) < 0) return 2;
    fcntl(output_pipe[0], F_SETFL, O_NONBLOCK);
    fcntl(1, F_SETFL, O_NONBLOCK);

    uint8_t hello = PROTOCOL;
    send_frame('H', &hello, 1);
    open_shell();

    int stdin_fd = 0;
    for (;;) {
        flush_out();
        uint64_t now = now_ms();
        if (now >= deadline_ms) leave(BYE_DEADLINE);
        uint64_t left = deadline_ms - now + 1;
        int room = out_queued() < OUT_HIGH_WATER;
        struct pollfd p[] = {
            {stdin_fd, POLLIN, 0},
            {signals, POLLIN, 0},
            {out_queued() ? 1 : -1, POLLOUT, 0},
            {room ? output_pipe[0] : -1, POLLIN, 0},
            {room ? grade.fd : -1, POLLIN, 0},
            {shell.status_fd, POLLIN, 0},
            {shell.command ? shell.command_fd : -1, POLLOUT, 0},
        };
        if (poll(p, sizeof p / sizeof *p, left > 3600000 ? 3600000 : (int)left) < 0) continue;
        if (p[3].revents) forward(output_pipe[0], 'O', CHUNK);
        if (p[4].revents && forward(grade.fd, 'g', CHUNK) == 0) close_fd(&grade.fd);
        if (p[5].revents) read_status();
        if (p[6].revents & POLLOUT && shell.command) push_command();
        if (p[6].revents & (POLLERR | POLLHUP)) close_fd(&shell.command_fd);
        if (p[1].revents) {
            struct signalfd_siginfo si;
            while (read(signals, &si, sizeof si) == (ssize_t)sizeof si) {}
        }
        reap();
        if (p[0].revents && !read_frames()) stdin_fd = -1;
    }
}
