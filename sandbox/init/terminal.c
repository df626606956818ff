/* Terminals: each is one process on a pseudo-terminal, to which the client types. */
#include "init.h"
#include <sys/ioctl.h>
#include <termios.h>

enum { INPUT_MOST = 1 << 20 };

/* The master is opened by name, the other end by the kernel: the agent's changes to /dev/pts do not matter. */
int open_pair(int *master, uint16_t rows, uint16_t columns) {
    struct winsize size = {rows, columns, 0, 0};
    int locked = 0;
    *master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (*master < 0) return -1;
    int other = -1;
    if (ioctl(*master, TIOCSPTLCK, &locked) == 0 && ioctl(*master, TIOCSWINSZ, &size) == 0)
        other = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (other < 0) close_fd(master);
    return other;
}

void open_terminal(uint32_t id, struct slot *s, uint16_t rows, uint16_t columns, char **argv, char **envp, char *cwd) {
    errno = EBUSY;
    int other = has_private_folders() ? -1 : open_pair(&s->output_fd, rows, columns);
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

void push_input(struct slot *s) {
    while (s->input_sent < s->input_length) {
        ssize_t n = write(s->output_fd, s->input + s->input_sent, s->input_length - s->input_sent);
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
