/*
 * Shells.  Each is an interactive bash without a terminal that reads one command after another, at its top level, from
 * memory that it shares with PID 1 (channel.h, bash/agent_input.c).  Between two commands it is stopped.
 *
 * Its descriptors, variables, functions, traps and options are the agent's alone.  History expansion is off, because
 * agents write `!` as in scripts.  There is job control, but no terminal that programs could open and wait at.
 */
#include "init.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Static_assert((int)TEXT_MOST >= (int)MAX_FRAME, "a frame's command, and a newline");
enum { SOON_NS = 200000, FEW = 4 << 10 };

#define PROMPT_COMMAND_KEPT "SBX_PROMPT_COMMAND" /* it runs before the agent's first command, not before BEGIN */
static const char BEGIN[] =
    "builtin unset HISTFILE; builtin set -m; "
    "${" PROMPT_COMMAND_KEPT "+builtin export \"PROMPT_COMMAND=$" PROMPT_COMMAND_KEPT "\"}; "
    "builtin unset " PROMPT_COMMAND_KEPT "; "
    "builtin enable -f /.sbx/agent_input.so agent_input 2>&5 && builtin agent_input || "
    "{ builtin echo \"the image's bash cannot load builtins, which the agent's commands need (is it static?)\" >&5; "
    "builtin exit 127; }\n";
static const char NO_BASH[] = "the image has no bash, which runs the agent's commands\n";
_Static_assert(OUTPUT_FD == 5, "BEGIN names it");

/* Nobody can make it smaller, which would kill this process at its next access. */
static struct channel *make_channel(int *fd) {
    struct channel *made = MAP_FAILED;
    *fd = memfd_create("channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0) return NULL;
    if (ftruncate(*fd, sizeof *made) == 0 && fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (made != MAP_FAILED) return made;
    close_fd(fd);
    return NULL;
}

void forget_shell(struct slot *s) {
    if (s->channel) munmap(s->channel, sizeof *s->channel);
    s->channel = NULL;
    close_fd(&s->unused_terminal_fd);
}

static int make_output(struct slot *s) {
    int output[2];
    if (s->output_fd >= 0) return 0;
    if (pipe2(output, O_CLOEXEC) < 0) return -1;
    fcntl(output[0], F_SETFL, O_NONBLOCK);
    s->output_fd = output[0], s->output_write_fd = output[1];
    return 0;
}

static void hide_prompt_command(void) {
    const char *command = getenv("PROMPT_COMMAND");
    if (!command) return;
    setenv(PROMPT_COMMAND_KEPT, command, 1);
    unsetenv("PROMPT_COMMAND");
}

/* What it prints until it has begun stays in the terminal: the image's variables may make it trace, and an interactive
   bash complains if it has none. */
static void become_shell(const struct slot *s, int first_line, int terminal, int channel_fd) {
    become_ordinary(OF_AGENT, agent_user(), first_line, s->output_write_fd);
    int nothing = fcntl(null_fd, F_DUPFD_CLOEXEC, 200);
    channel_fd = fcntl(channel_fd, F_DUPFD_CLOEXEC, 200);
    terminal = terminal < 0 ? nothing : fcntl(terminal, F_DUPFD_CLOEXEC, 200);
    ioctl(terminal, TIOCEXCL);
    dup2(channel_fd, CHANNEL_FD), dup2(nothing, NOTHING_FD), dup2(STDOUT_FILENO, OUTPUT_FD);
    dup2(terminal, STDOUT_FILENO), dup2(terminal, STDERR_FILENO);
    setenv("HISTFILE", "", 1); /* the image's own is neither read nor shortened */
    hide_prompt_command();
    if (chdir(s->cwd) < 0 && chdir("/") < 0) _exit(127);
    execlp("bash", "bash", "--noprofile", "--norc", "--noediting", "+H", "-i", (char *)NULL);
    write(OUTPUT_FD, NO_BASH, sizeof NO_BASH - 1);
    _exit(127);
}

int open_shell(struct slot *s) {
    int first_line[2], channel_fd;
    if (has_private_folders()) { errno = EBUSY; return -1; }
    if (make_output(s) < 0 || pipe2(first_line, O_CLOEXEC) < 0) return -1;
    pid_t pid = -1;
    if ((s->channel = make_channel(&channel_fd))) {
        int terminal = open_pair(&s->unused_terminal_fd, 0, 0);
        write(first_line[1], BEGIN, sizeof BEGIN - 1);
        pid = fork();
        if (pid == 0) become_shell(s, first_line[0], terminal, channel_fd);
        close(channel_fd), close_fd(&terminal);
        if (pid < 0) forget_shell(s);
    }
    close(first_line[0]), close(first_line[1]);
    if (pid < 0) return -1;
    s->pid = pid;
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

static void continue_if_stopped(const struct slot *s) {
    siginfo_t is = {0};
    if (waitid(P_PID, (id_t)s->pid, &is, WSTOPPED | WNOHANG | WNOWAIT) == 0 && is.si_pid) kill(s->pid, SIGCONT);
}

void run_command(uint32_t id, struct slot *s, const char *command, size_t length) {
    s->kind = SHELL;
    if (!s->pid && open_shell(s) < 0) {
        send_exit(s, id, -errno, DIED_NO_FORK);
        spool_end(&s->spool);
        return;
    }
    memcpy(s->channel->text, command, length);
    s->channel->text[length] = '\n';
    s->channel->length = (uint32_t)length + 1;
    s->pending = 1, s->id = id, s->ticks = ticks_now();
    set_state(s->channel, COMMAND_GIVEN);
    continue_if_stopped(s);
}

/* Its directory as the kernel knows it; unchanged if that cannot be read. */
void find_directory(struct slot *s) {
    static const char DELETED[] = " (deleted)";
    char path[64], cwd[sizeof s->cwd];
    struct stat of_it;
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)s->pid);
    act_as_agent(1); /* another user's process tells nobody else */
    ssize_t n = readlink(path, cwd, sizeof cwd - 1);
    if (n > (ssize_t)sizeof DELETED && stat(path, &of_it) == 0 && !of_it.st_nlink) n -= (ssize_t)sizeof DELETED - 1;
    act_as_agent(0);
    if (n <= 0 || cwd[0] != '/') return;
    memcpy(s->cwd, cwd, (size_t)n);
    s->cwd[n] = 0;
}

static void end_command(struct slot *s) {
    find_directory(s);
    s->pending = 0, s->code = s->channel->code;
    drain(s);
    char b[14 + sizeof s->cwd];
    uint16_t which = number(s);
    size_t length = strlen(s->cwd);
    memcpy(b, &which, 2), memcpy(b + 2, &s->id, 4), memcpy(b + 6, &s->code, 4), memcpy(b + 10, &s->spool.saved, 4);
    memcpy(b + 14, s->cwd, length);
    send_frame('S', b, 14 + length);
    spool_end(&s->spool);
}

/* After a signal: a shell may have stopped because its command has ended, or just before it was given one. */
void end_commands(void) {
    for (struct slot *s = slots; s < slots + SLOTS; s++) {
        if (s->kind != SHELL || !s->pending) continue;
        if (state_of(s->channel) == COMMAND_GIVEN) continue_if_stopped(s);
        else if (state_of(s->channel) == COMMAND_ENDED) end_command(s);
    }
}

/* Output right before a command's end is sent together with its end, to pass the engine once instead of twice.  Returns
   whether there is a signal, by which a shell tells its end. */
int await_end(int signals) {
    int spoke = 0;
    for (struct slot *s = slots; s < slots + SLOTS; s++) {
        spoke |= s->spoke && s->pending;
        s->spoke = 0;
    }
    struct pollfd p = {signals, POLLIN, 0};
    struct timespec soon = {0, SOON_NS};
    return spoke && out_queued() <= FEW && ppoll(&p, 1, &soon, NULL) > 0;
}
