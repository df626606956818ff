/*
 * Reads and writes files for the client.
 *
 * Only regular files, and nothing of /proc or /sys: there this process would open its own files.  Links in the last
 * component of a path are not followed, and nothing here waits for a pipe or a device.  Paths have the meaning that they
 * have in the container, of which this process can see nothing else.
 */
#include "init.h"
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { WRITE_APPEND = 1, WRITE_REPLACE = 2, WRITE_CLEAR = 4, AS_AGENT = 8 };
enum { CLEAR_MS = 1000, LINKS_MOST = 40 };

static uint64_t clear_until_ms; /* counted from the first removal: listing a large folder takes long too */

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *walk) {
    (void)s, (void)kind;
    if (!clear_until_ms) clear_until_ms = now_ms() + CLEAR_MS;
    if (now_ms() > clear_until_ms) return ETIME;
    return remove(path) < 0 && !(errno == EBUSY && walk->level == 0) ? errno : 0; /* a mount point stays, empty */
}

/* Remove a folder and its content without following links.  Returns ETIME if there is too much for one step: the next
   request continues, and other requests are handled in between. */
static int remove_folder(const char *path) {
    clear_until_ms = 0;
    int failed = nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
    return failed < 0 ? errno : failed;
}

/* Rename a folder within its parent folder, at once, whatever its content. */
int put_aside(const char *path) {
    char aside[PATH_MOST + 64];
    int above = (int)(strrchr(path, '/') - path);
    snprintf(aside, sizeof aside, "%.*s/.sbx-aside-%llx", above, path, (unsigned long long)now_ns());
    return renameat2(AT_FDCWD, path, AT_FDCWD, aside, RENAME_NOREPLACE) == 0;
}

/* Clear a path.  A folder is renamed; a folder of the image or a mount point cannot be, and is emptied. */
static int make_room(const char *path, int flags) {
    struct stat s;
    if (lstat(path, &s) < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
    if (!S_ISDIR(s.st_mode)) return unlink(path) < 0 ? errno : 0;
    return !(flags & WRITE_CLEAR) && put_aside(path) ? 0 : remove_folder(path);
}

/* Root owns the folder, and only the owner of a file may remove its name from it.  A folder of /proc may be a different
   one for each process. */
static int keep(int fd) {
    struct stat s;
    struct statfs f;
    if (fstat(fd, &s) < 0 || fstatfs(fd, &f) < 0) return errno;
    if (f.f_type == PROC_SUPER_MAGIC) return ELOOP;
    if (s.st_uid != 0 && fchown(fd, 0, (gid_t)-1) < 0) return errno;
    if (!(s.st_mode & 0022) || s.st_mode & S_ISVTX) return 0;
    return fchmod(fd, (s.st_mode & 07777) | S_ISVTX) < 0 ? errno : 0;
}

/* Protect every folder that a path leads through, links included: its owner could put another file there. */
static int keep_folders(const char *path) {
    char left[2 * PATH_MOST + 2], link[PATH_MOST + 1], name[NAME_MAX + 1];
    char *at = strcpy(left, path);
    int links = 0, fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0 ? errno : keep(fd);
    while (!failed) {
        at += strspn(at, "/");
        size_t n = strcspn(at, "/");
        char *after = at + n;
        if (!after[strspn(after, "/")]) break;
        if (n > NAME_MAX) { failed = ENAMETOOLONG; break; }
        memcpy(name, at, n), name[n] = 0;
        ssize_t linked = readlinkat(fd, name, link, PATH_MOST);
        int below = -1;
        if (linked >= 0) {
            if (++links > LINKS_MOST) { failed = ELOOP; break; }
            if ((size_t)linked + strlen(after) >= sizeof left) { failed = ENAMETOOLONG; break; }
            memmove(left + linked, after, strlen(after) + 1);
            memcpy(at = left, link, (size_t)linked);
            if (*at != '/') continue;
            below = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        } else {
            below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below < 0 && errno == ENOENT) break; /* it will be created, owned by root */
            at = after;
        }
        failed = below < 0 ? errno : keep(below);
        close_fd(&fd);
        fd = below;
    }
    close_fd(&fd);
    return failed;
}

void make_parents(char *path) {
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(path, 0755); /* a failure shows when the file is opened */
        *p = '/';
    }
}

/* Return the errno for anything but a regular file of the container; 0 for one. */
static int not_plain(int fd) {
    struct stat s;
    struct statfs f;
    if (fstat(fd, &s) < 0 || fstatfs(fd, &f) < 0) return errno;
    if (S_ISDIR(s.st_mode)) return EISDIR;
    if (!S_ISREG(s.st_mode)) return EINVAL;
    return f.f_type == PROC_SUPER_MAGIC || f.f_type == SYSFS_MAGIC ? EPERM : 0;
}

/* A path that ends in '/' is a directory. */
static int write_file(char *path, uint32_t mode, int flags, const char *data, size_t length) {
    size_t path_length = strlen(path);
    if (!path_length || path[0] != '/') return EINVAL;
    int directory = path_length > 1 && path[path_length - 1] == '/';
    if (directory) path[path_length - 1] = 0;
    if (flags & WRITE_REPLACE) {
        int failed = keep_folders(path);
        if (!failed) failed = make_room(path, flags);
        if (failed) return failed;
    }
    make_parents(path);
    if (directory) {
        if (mkdir(path, mode) < 0) return errno == EEXIST ? 0 : errno;
        return chmod(path, mode) < 0 ? errno : 0; /* independent of the umask */
    }
    int how = flags & WRITE_APPEND ? O_APPEND : flags & WRITE_REPLACE ? O_CREAT | O_EXCL : O_CREAT;
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | how, mode);
    if (fd < 0) return errno;
    int failed = not_plain(fd);
    if (!failed && !(flags & WRITE_APPEND)) {
        if (ftruncate(fd, 0) < 0) failed = errno;
        fchmod(fd, mode);
    }
    while (length && !failed) {
        ssize_t n = write(fd, data, length);
        if (n < 0 && errno != EINTR) failed = errno;
        if (n > 0) data += n, length -= (size_t)n;
    }
    if (close(fd) < 0 && !failed) failed = errno;
    return failed;
}

void take_path(char *path, const char *p, size_t n, uint16_t length, size_t at) {
    if (length > PATH_MOST || at + length > n) leave(BYE_PROTOCOL);
    memcpy(path, p + at, length);
    path[length] = 0;
}

/* mode u32, flags u8, path length u16, path, content. */
void handle_write(uint32_t id, char *p, size_t n) {
    uint32_t mode;
    uint16_t path_length;
    char path[PATH_MOST + 1];
    if (n < 7) leave(BYE_PROTOCOL);
    memcpy(&mode, p, 4), memcpy(&path_length, p + 5, 2);
    take_path(path, p, n, path_length, 7);
    act_as_agent(p[4] & AS_AGENT);
    int failed = write_file(path, mode, p[4], p + 7 + path_length, n - 7 - path_length);
    act_as_agent(0);
    send_ack(id, failed, 0);
}

/* offset u64, most u32, flags u8, path.  Answers with id, errno, size of the file u64, bytes. */
void handle_read(uint32_t id, char *p, size_t n) {
    uint64_t offset, size = 0;
    uint32_t most;
    char path[PATH_MOST + 1];
    struct stat s;
    ssize_t got = 0;
    if (n < 13 || n - 13 > PATH_MOST) leave(BYE_PROTOCOL);
    memcpy(&offset, p, 8), memcpy(&most, p + 8, 4);
    take_path(path, p, n, (uint16_t)(n - 13), 13);
    if (most > MAX_FRAME / 2) most = MAX_FRAME / 2;
    char *at = reserve(16 + most);
    if (!at) { send_ack(id, ENOBUFS, 0); return; }
    act_as_agent(p[12] & AS_AGENT);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    int32_t failed = fd < 0 ? errno : not_plain(fd);
    act_as_agent(0);
    if (!failed && fstat(fd, &s) == 0) {
        size = (uint64_t)s.st_size;
        got = pread(fd, at + 16, most, (off_t)offset);
        if (got < 0) failed = errno;
    }
    close_fd(&fd);
    memcpy(at, &id, 4), memcpy(at + 4, &failed, 4), memcpy(at + 8, &size, 8);
    commit(at, 'f', 16 + (got > 0 ? (size_t)got : 0));
}
