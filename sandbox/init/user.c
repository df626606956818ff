/*
 * Users other than root: the agent's, in whose name its shells and terminals run and its files are written and read, and
 * the tests'.  The client knows them from the container's /etc/passwd; nothing here reads it.
 *
 * The tests keep LEASE even as another user (capabilities.c): else live processes of the same user could trace them.
 */
#include "init.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct user agent; /* root, until a frame names another one */

static int is_root(const struct user *user) { return user->uid == 0 && user->gid == 0 && user->group_count == 0; }

/* uid u32, gid u32, number of groups u16, groups u32 each.  Returns its length. */
size_t take_user(struct user *to, const char *p, size_t n) {
    if (n < 10) leave(BYE_PROTOCOL);
    memcpy(&to->uid, p, 4), memcpy(&to->gid, p + 4, 4), memcpy(&to->group_count, p + 8, 2);
    size_t length = 10 + 4 * (size_t)to->group_count;
    if (to->group_count > GROUPS_MOST || length > n) leave(BYE_PROTOCOL);
    memcpy(to->groups, p + 10, length - 10);
    return length;
}

const struct user *agent_user(void) { return &agent; }

/* A user, and HOME, empty if it stays as it is.  Shells that run no command start again as that user. */
void handle_agent_user(uint32_t id, const char *p, size_t n) {
    char home[PATH_MOST + 1];
    size_t used = take_user(&agent, p, n);
    if (n - used > PATH_MOST) leave(BYE_PROTOCOL);
    take_path(home, p, n, (uint16_t)(n - used), used);
    if (*home) setenv("HOME", home, 1);
    send_ack(id, restart_idle_shells() < 0 ? errno : 0, 0);
}

static void keep_lease(struct __user_cap_data_struct *sets) {
    struct __user_cap_data_struct *half = &sets[CAP_TO_INDEX(CAP_LEASE)];
    uint32_t lease = half->permitted & CAP_TO_MASK(CAP_LEASE);
    memset(sets, 0, _LINUX_CAPABILITY_U32S_3 * sizeof *sets);
    half->permitted = half->effective = half->inheritable = lease;
}

/* In a child of PID 1, before its exec. */
void become_user(enum whose whose, const struct user *user, int output) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (is_root(user)) return;
    fchown(output, user->uid, (gid_t)-1); /* so that it can open /dev/stdout and its terminal by name */
    int keeps = user->uid != 0 && whose == OF_TESTS;
    if (keeps && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0) _exit(127);
    if (setgroups(user->group_count, user->groups) < 0) _exit(127);
    if (setresgid(user->gid, user->gid, user->gid) < 0 || setresuid(user->uid, user->uid, user->uid) < 0) _exit(127);
    if (!keeps) return;
    if (syscall(SYS_capget, &header, sets) < 0) _exit(127);
    keep_lease(sets);
    if (syscall(SYS_capset, &header, sets) < 0) _exit(127);
    if (sets[CAP_TO_INDEX(CAP_LEASE)].permitted) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_LEASE, 0, 0);
}

/* Begin or end access to files in the agent's name: without root's capabilities, and new files are the agent's. */
void act_as_agent(int begins) {
    static const struct user root;
    const struct user *user = begins ? &agent : &root;
    if (is_root(&agent)) return;
    setgroups(user->group_count, user->groups);
    setfsgid(user->gid);
    setfsuid(user->uid);
}
