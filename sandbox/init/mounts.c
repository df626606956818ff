/*
 * Private folders: what is in them exists for PID 1 and for the children that it starts from then on, and for no process
 * that ran before.  The tests of a live container are there, beside the agent's processes.
 *
 * PID 1 moves to a mount namespace of its own, a copy of the one that the other processes keep, and mounts a tmpfs on
 * each folder there.  It begins with the folders empty.  A mount point can be renamed or removed by whoever sees none
 * there, and the mount goes with it.  So each folder, and each above it, is first mounted on itself where the agent is,
 * who may not unmount anything: its name cannot come to lead elsewhere.
 *
 * While there are private folders no shell and no terminal starts, because it would be on the tests' side.  Once the
 * tests are dead, PID 1 returns to the namespace of the others, where the agent goes on.
 */
#include "init.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum { FOLDERS_MOST = 32, TRIES = 8 };

static char pinned[FOLDERS_MOST][PATH_MOST + 1]; /* folders that are mounted on themselves, the higher ones first */
static int pinned_count;
static char private[FOLDERS_MOST][PATH_MOST + 1];
static int private_count;
static int agents_namespace = -1;

int has_private_folders(void) { return private_count > 0; }

/* Open a folder; what is there instead is renamed, and a missing one created. */
static int open_real_folder(const char *path) {
    for (int i = 0; i < TRIES; i++) {
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) return fd;
        if (errno == ENOENT) mkdir(path, 0755);
        else if (errno == ENOTDIR || errno == ELOOP) put_aside(path);
        else return -1;
    }
    return -1;
}

/* Mount a folder on itself.  The folders above it are pinned already, so only its own name can have changed meanwhile,
   and no longer once it is a mount point. */
static int pin(const char *path) {
    struct stat opened, named;
    char self[32];
    for (int i = 0; i < pinned_count; i++)
        if (!strcmp(pinned[i], path)) return 0;
    if (pinned_count == FOLDERS_MOST) return E2BIG;
    int fd = open_real_folder(path);
    if (fd < 0) return errno;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int failed = mount(self, self, NULL, MS_BIND, NULL) < 0 ? errno : 0;
    if (!failed) {
        strcpy(pinned[pinned_count++], path);
        int known = fstat(fd, &opened) == 0 && lstat(path, &named) == 0;
        if (!known || opened.st_dev != named.st_dev || opened.st_ino != named.st_ino) failed = EBUSY;
    }
    close(fd);
    return failed;
}

static int pin_with_parents(char *path) {
    int failed = 0;
    for (char *p = path + 1; !failed && (p = strchr(p, '/')); p++) {
        *p = 0;
        failed = pin(path);
        *p = '/';
    }
    return failed ? failed : pin(path);
}

static int mount_private(const char *path, unsigned mode) {
    char options[32];
    snprintf(options, sizeof options, "mode=%o", mode);
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0) return errno;
    strcpy(private[private_count++], path);
    return 0;
}

static int unmount_all(void) {
    int failed = 0;
    while (private_count)
        if (umount2(private[--private_count], MNT_DETACH) < 0) failed = errno;
    if (agents_namespace >= 0 && setns(agents_namespace, CLONE_NEWNS) < 0) failed = errno;
    close_fd(&agents_namespace);
    while (pinned_count)
        if (umount2(pinned[--pinned_count], MNT_DETACH) < 0) failed = errno;
    return failed;
}

static int mount_all(char paths[][PATH_MOST + 1], const uint16_t *modes, int count) {
    int failed = 0;
    for (int i = 0; i < count && !failed; i++) failed = pin_with_parents(paths[i]);
    if (!failed && (agents_namespace = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC)) < 0) failed = errno;
    if (!failed && unshare(CLONE_NEWNS) < 0) failed = errno;
    if (!failed && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) failed = errno;
    for (int i = 0; i < count && !failed; i++) failed = mount_private(paths[i], modes[i]);
    if (failed) unmount_all();
    return failed;
}

/* For each folder: mode u16, path length u16, path.  None: there are private folders no longer. */
void handle_private_folders(uint32_t id, const char *p, size_t n) {
    static char paths[FOLDERS_MOST][PATH_MOST + 1];
    uint16_t modes[FOLDERS_MOST], length;
    int count = 0;
    for (size_t at = 0; at < n; at += 4u + length) {
        if (count == FOLDERS_MOST || n - at < 4) leave(BYE_PROTOCOL);
        memcpy(&modes[count], p + at, 2), memcpy(&length, p + at + 2, 2);
        take_path(paths[count++], p, n, length, at + 4);
    }
    if (count && has_private_folders()) send_ack(id, EALREADY, 0);
    else send_ack(id, count ? mount_all(paths, modes, count) : unmount_all(), 0);
}
