/* Kills one command and what it started, the tests, or everything, and reaps orphans. */
#include "init.h"
#include <dirent.h>
#include <linux/capability.h>

enum { KILL_ALL_LIMIT_MS = 5000, INTERRUPT_PASSES = 50, INTERRUPT_WAITS = 5000, PROCESSES = 4096, QUIET_PASSES = 16 };

static void tell_death(pid_t pid, int status) {
    if (pid == child.pid) child_ended(status);
    for (int i = 0; i < SLOTS; i++)
        if (pid == slots[i].pid) slot_died(&slots[i], status);
}

void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) tell_death(pid, status);
}

/* Kill and reap until this is the only process of the namespace.  fork() fails while a signal is pending, so a fork
   bomb cannot outrun kill(-1).  ESRCH also covers processes that came in from outside, which are not our children. */
void kill_all(uint32_t id) {
    uint64_t give_up = now_ms() + KILL_ALL_LIMIT_MS;
    uint32_t reaped = 0;
    for (int i = 0; i < SLOTS; i++) slots[i].died_because = DIED_INTERRUPTED;
    for (;;) {
        int alone = kill(-1, SIGKILL) < 0 && errno == ESRCH;
        int childless = 0, status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) != 0;) {
            if (pid > 0) reaped++, tell_death(pid, status);
            else if (errno == ECHILD) { childless = 1; break; }
        }
        if (alone && childless) break;
        if (now_ms() > give_up) { send_ack(id, ETIMEDOUT, reaped); return; }
        pause_us(300);
    }
    remove_ipc();
    send_ack(id, 0, reaped);
}

struct process {
    pid_t pid, parent, session;
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
            " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu";
        char state;
        int parent, session;
        unsigned long long started;
        if (!after_name || sscanf(after_name + 1, FIELDS, &state, &parent, &session, &started) != 4) continue;
        found[n++] = (struct process){pid, parent, session, started, state == 'Z' || state == 'X', 0};
    }
    closedir(proc);
    return n;
}

/* The tests alone have LEASE in their bounding set (capabilities.c), as whatever user, and so has all that they start. */
static int is_of_tests(pid_t pid) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char *line = strstr(text, "\nCapBnd:");
    return line && strtoull(line + strlen("\nCapBnd:"), NULL, 16) >> CAP_LEASE & 1;
}

/* Kill the tests and what they started, and nothing of the agent's.  A process can fork while it is looked for, so there
   must be none in many looks one after another. */
void kill_tests(uint32_t id) {
    static struct process all[PROCESSES];
    uint64_t give_up = now_ms() + KILL_ALL_LIMIT_MS;
    for (int quiet = 0; quiet < QUIET_PASSES; quiet++, pause_us(200)) {
        int n = read_processes(all, PROCESSES);
        for (int i = 0; i < n; i++)
            if (!all[i].dead && is_of_tests(all[i].pid)) kill(all[i].pid, SIGKILL), quiet = -1;
        reap();
        if (now_ms() > give_up) { send_ack(id, ETIMEDOUT, 0); return; }
    }
    send_ack(id, 0, 0);
}

/* Return whether an orphan can belong to another slot: it is in that slot's session, or has left its session while that
   slot ran a command too. */
static int may_belong_to_another(const struct slot *s, const struct process *p) {
    for (int i = 0; i < SLOTS; i++) {
        const struct slot *other = &slots[i];
        if (other == s || !other->pid) continue;
        if (p->session == other->pid) return 1;
        if (p->session != s->pid && (other->pending || other->ticks >= s->ticks)) return 1;
    }
    return 0;
}

/* Kill what the running command started, and leave background jobs of earlier commands alone: a process is doomed when
   it began after the command did and its parent is the slot's process, doomed, or gone (then we are the parent, and no
   other slot may be its owner).  Returns how many were alive. */
static int kill_command_once(const struct slot *s) {
    static struct process all[PROCESSES];
    int n = read_processes(all, PROCESSES), alive = 0, changed = 1;
    while (changed) {
        changed = 0;
        for (int i = 0; i < n; i++) {
            if (all[i].doomed || all[i].pid == s->pid || all[i].started < s->ticks) continue;
            int under = all[i].parent == s->pid;
            for (int j = 0; j < n && !under; j++) under = all[j].doomed && all[j].pid == all[i].parent;
            if (!under && all[i].parent == 1 && all[i].pid != child.pid) {
                int of_a_slot = 0;
                for (int k = 0; k < SLOTS; k++) of_a_slot |= slots[k].pid == all[i].pid;
                under = !of_a_slot && !may_belong_to_another(s, &all[i]);
            }
            if (under) all[i].doomed = changed = 1;
        }
    }
    for (int i = 0; i < n; i++)
        if (all[i].doomed && !all[i].dead) kill(all[i].pid, SIGKILL), alive++;
    return alive;
}

void end_slot(struct slot *s, int because) {
    int status = 0;
    if (!s->pid) return;
    s->died_because = because;
    find_directory(s);
    kill(s->pid, SIGSTOP); /* so that it starts nothing while its children are looked up */
    for (int pass = 0; s->pending && pass < INTERRUPT_PASSES && kill_command_once(s); pass++) pause_us(200);
    kill(s->pid, SIGKILL);
    for (int i = 0; i < INTERRUPT_WAITS && waitpid(s->pid, &status, WNOHANG) == 0; i++) pause_us(200);
    slot_died(s, status);
}
