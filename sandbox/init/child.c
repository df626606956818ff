/* Runs one child with exactly the arguments and environment of the client; its output is a separate stream. */
#include "init.h"
#include <sys/ioctl.h>
#include <sys/syscall.h>

struct child child = {.fd = -1};

/* argc u16, envc u16, then NUL-terminated strings: directory, arguments, environment.  Returns 0 for anything else. */
int parse_strings(struct strings *to, char *p, size_t n) {
    uint16_t argc, envc;
    if (n < 5 || p[n - 1] != 0) return 0;
    memcpy(&argc, p, 2), memcpy(&envc, p + 2, 2);
    char *at = p + 4, *end = p + n;
    if (argc < 1 || argc > MOST_STRINGS || envc > MOST_STRINGS) return 0;
    for (int i = 0; i < 1 + argc + envc; i++) {
        if (at >= end) return 0;
        if (i == 0) to->cwd = at;
        else if (i <= argc) to->argv[i - 1] = at;
        else to->envp[i - 1 - argc] = at;
        at += strlen(at) + 1;
    }
    to->argv[argc] = to->envp[envc] = NULL;
    return 1;
}

void start_child(uint32_t id, char *p, size_t n) {
    static struct strings of;
    static struct user user;
    size_t used = take_user(&user, p, n);
    if (!parse_strings(&of, p + used, n - used)) leave(BYE_PROTOCOL);
    int pipe_[2];
    if (child.pid || pipe2(pipe_, O_CLOEXEC) < 0) { send_ack(id, child.pid ? EBUSY : errno, 0); return; }
    pid_t pid = fork();
    if (pid == 0) {
        become_ordinary(OF_TESTS, &user, -1, pipe_[1]);
        char real[WORKDIR_MOST];
        if ((chdir(of.cwd) < 0 || syscall(SYS_getcwd, real, sizeof real) < 0) && chdir("/") < 0) _exit(127);
        execve(of.argv[0], of.argv, of.envp);
        _exit(127);
    }
    close(pipe_[1]);
    if (pid < 0) {
        close(pipe_[0]);
        send_ack(id, EAGAIN, 0);
        return;
    }
    fcntl(pipe_[0], F_SETFL, O_NONBLOCK);
    child.pid = pid, child.fd = pipe_[0], child.id = id;
}

static ssize_t forward(size_t most) {
    char *at = reserve(CHUNK);
    if (!at) return -1;
    ssize_t n = read(child.fd, at, most < CHUNK ? most : CHUNK);
    if (n > 0) commit(at, 'g', (size_t)n);
    return n;
}

void read_child(void) {
    if (forward(CHUNK) == 0) close_fd(&child.fd);
}

void child_ended(int status) {
    int left = 0;
    if (child.fd >= 0) ioctl(child.fd, FIONREAD, &left);
    while (left > 0) {
        ssize_t n = forward((size_t)left);
        if (n <= 0) break;
        left -= (int)n;
    }
    close_fd(&child.fd);
    char b[9];
    int32_t code = exit_code(status);
    memcpy(b, &child.id, 4), memcpy(b + 4, &code, 4), b[8] = WIFSIGNALED(status) ? 1 : 0;
    send_frame('E', b, sizeof b);
    child.pid = 0;
}

/* Kill it and its children, if they stayed in its group; reap() reports its end. */
void kill_child(void) {
    if (!child.pid) return;
    kill(-child.pid, SIGKILL);
    kill(child.pid, SIGKILL);
}
