/*
 * `init links ROOT HIDDEN …`: removes links to the tests' hidden files from a container.
 *
 * Tests that run as root follow an agent's links: with one into their own folder, they would compare the expected results
 * with themselves.  This runs when the tests are in the container.  It checks every link of every file system there,
 * except the kernel's own and the toolchain's, and removes one that
 *
 *   - leads into or through a hidden folder (a path below ROOT), or to ROOT, where absolute links start;
 *   - leads through a process's folder in /proc, where a path may differ for each process that follows it;
 *   - leads through a missing name and up from it again.
 *
 * The kernel resolves the path, name by name, so that links on the way, `..` and endless paths have the kernel's meaning.
 * A link that leads on only through a removed one leads nowhere.  What other processes remove or rename meanwhile is passed
 * over, and a link that they make behind its back is not seen.
 *
 * Prints the removed links, the first ones by name.  Exit code 1, with the reason instead, if a link could not be checked
 * or removed.  However deep or many the folders are, few descriptors are open at once, and it holds NAMES_MOST bytes of
 * their names: more names in one folder cannot be checked.
 */
#include "init.h"
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { LINKS_FOLLOWED = 40, NAMES_MOST = 64 << 20, KERNELS_MOST = 64, NAMED_MOST = 5, NAMED_BYTES = 100 };
enum { WAY_MOST = 256 }; /* of a path that the kernel goes again for each name */
enum { STAYS = 0, GOES = -1 }; /* of a link; else an errno */
enum { FOLDER = O_PATH | O_DIRECTORY | O_CLOEXEC, TO_READ = O_RDONLY | O_DIRECTORY | O_CLOEXEC };

struct which {
    dev_t device;
    ino_t number;
};

struct folder {
    int fd;
    struct which which;
};

static const char *const kinds[] = { /* file systems in which nobody makes a link */
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "securityfs", "debugfs", "tracefs", "bpf",
};
static const char *const in_dev[][2] = {
    {"/dev/fd", "/proc/self/fd"},       {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
    {"/dev/stderr", "/proc/self/fd/2"}, {"/dev/core", "/proc/kcore"},
};

static struct folder root, here;                     /* here: the folder whose links are being checked */
static struct which proc, toolchain, hidden[MOST_STRINGS]; /* all zero: it does not exist */
static int hidden_count;
static dev_t kernels[KERNELS_MOST];
static int kernel_count;
static char place[NAMED_BYTES + 1]; /* how the path of what is looked at begins */
static size_t place_length;         /* of the whole path */
static char said[NAMED_MOST * (NAMED_BYTES + sizeof ", ...")];
static size_t said_length;
static unsigned long removed;
static char *names; /* of folders, one after another: to be looked at, or, before a "/", looked at and around `here` */
static size_t names_length;

/* ---- what is where ---- */

static struct which which_of(const struct stat *s) { return (struct which){s->st_dev, s->st_ino}; }
static int same(struct which a, struct which b) { return a.device == b.device && a.number == b.number; }

static int is_hidden(struct which it) {
    for (int i = 0; i < hidden_count; i++)
        if (same(it, hidden[i])) return 1;
    return 0;
}

static int is_kernels(dev_t device) {
    for (int i = 0; i < kernel_count; i++)
        if (device == kernels[i]) return 1;
    return 0;
}

static int is_passed_over(struct which it) {
    return is_kernels(it.device) || same(it, proc) || same(it, toolchain) || is_hidden(it);
}

static int find_folder(const char *path, struct which *to) {
    struct stat s;
    path += strspn(path, "/");
    int fd = openat(root.fd, path, FOLDER); /* stays open: its number is not reused */
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : errno;
    if (fstat(fd, &s) < 0) return errno;
    *to = which_of(&s);
    return 0;
}

static int is_kind_of_kernels(const char *kind) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kind, kinds[i])) return 1;
    return 0;
}

static int find_kernels(void) {
    char *line = NULL;
    size_t room = 0;
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    if (!mounts) return errno;
    while (getline(&line, &room, mounts) >= 0) {
        unsigned major, minor;
        char kind[16], *rest = strstr(line, " - ");
        if (!rest || sscanf(rest, " - %15s", kind) != 1) return EINVAL;
        if (sscanf(line, "%*s %*s %u:%u", &major, &minor) != 2) return EINVAL;
        if (!is_kind_of_kernels(kind) || is_kernels(makedev(major, minor))) continue;
        if (kernel_count == KERNELS_MOST) return EOVERFLOW;
        kernels[kernel_count++] = makedev(major, minor);
    }
    return ferror(mounts) ? EIO : 0;
}

/* ---- where a link leads ---- */

static int read_link(int at, const char *name, char text[PATH_MOST]) {
    ssize_t n = readlinkat(at, name, text, PATH_MOST);
    if (n < 0) return errno;
    if (n == PATH_MOST) return ENAMETOOLONG;
    text[n] = 0;
    return 0;
}

/* Put the names of a path before those that are left, each with a '/' after it. */
static char *put_before(char *left, const char *path) {
    for (const char *end = path + strlen(path), *name; end > path; end = name - (name > path)) {
        for (name = end; name > path && name[-1] != '/'; name--) {}
        size_t n = (size_t)(end - name);
        if (!n || (n == 1 && *name == '.')) continue;
        *--left = '/';
        memcpy(left -= n, name, n);
    }
    return left;
}

static int goes_up(const char *left) { return !strncmp(left, "../", 3) || strstr(left, "/../"); }

/* A path in /proc: `mounts` is a link to `self/mounts`, /etc/mtab one to either. */
static int is_of_a_process(const char *left) {
    if (!strcmp(left, "mounts/") || !strcmp(left, "self/mounts/")) return 0;
    return goes_up(left) || !strncmp(left, "self/", 5) || !strncmp(left, "thread-self/", 12) || isdigit(*left) ||
           !strncmp(left, "net/", 4);
}

static void go_to(struct folder *at, struct folder to) {
    if (at->fd != root.fd && at->fd != here.fd) close(at->fd);
    *at = to;
}

/* From the folder `at`, which becomes another when the way from it gets long. */
static int follow(struct folder *at, char text[PATH_MOST]) {
    static char path[(LINKS_FOLLOWED + 1) * PATH_MOST + 1];
    char way[WAY_MOST + PATH_MOST], *left = put_before(path + sizeof path - 1, text);
    size_t length = 0; /* of the way from `at` through folders that have been looked at */
    for (int links = 1; *left;) {
        struct stat s;
        const char *name = left;
        size_t n = strcspn(name, "/");
        left += n + 1;
        if (!strncmp(name, "../", 3) && same(at->which, root.which)) continue;
        memcpy(way + length, name, n), way[length + n] = 0;
        if (fstatat(at->fd, way, &s, AT_SYMLINK_NOFOLLOW) < 0) {
            int away = errno == ENOENT || errno == ENAMETOOLONG;
            return !away ? errno : goes_up(name) ? GOES : STAYS;
        }
        if (S_ISLNK(s.st_mode)) {
            int failed = read_link(at->fd, way, text);
            if (failed) return failed;
            if (++links > LINKS_FOLLOWED) return STAYS; /* nobody gets through */
            left = put_before(left, text);
            if (*text == '/') go_to(at, root), length = 0;
            continue;
        }
        if (!S_ISDIR(s.st_mode)) return goes_up(left) ? GOES : STAYS;
        at->which = which_of(&s);
        if (is_hidden(at->which)) return GOES;
        if (same(at->which, proc)) return is_of_a_process(left) ? GOES : STAYS;
        length += (size_t)sprintf(way + length + n, "/") + n;
        if (length <= WAY_MOST) continue;
        struct folder next = {openat(at->fd, way, FOLDER), at->which};
        if (next.fd < 0) return errno;
        go_to(at, next), length = 0;
    }
    return same(at->which, root.which) ? GOES : STAYS;
}

/* ---- the walk ---- */

static int is_gone(int failed) { return failed == ENOENT || failed == ENOTDIR || failed == ELOOP || failed == EINVAL; }

static void go_below(const char *name) {
    if (place_length < NAMED_BYTES) snprintf(place + place_length, sizeof place - place_length, "/%s", name);
    place_length += 1 + strlen(name);
}

static void go_above(const char *name) { place_length -= 1 + strlen(name); }

static int is_at(const char *path) { return place_length == strlen(path) && !memcmp(place, path, place_length); }

static void name_place(const char *before) {
    int shown = place_length < NAMED_BYTES ? (int)place_length : NAMED_BYTES;
    const char *after = place_length > NAMED_BYTES ? "..." : place_length ? "" : "/";
    char *to = said + said_length;
    said_length += (size_t)snprintf(to, sizeof said - said_length, "%s%.*s%s", before, shown, place, after);
}

static int judge(const char *name) {
    char text[PATH_MOST];
    int it = read_link(here.fd, name, text);
    if (it) return is_gone(it) ? STAYS : it;
    for (size_t i = 0; i < sizeof in_dev / sizeof *in_dev; i++)
        if (is_at(in_dev[i][0]) && !strcmp(text, in_dev[i][1])) return STAYS;
    struct folder at = *text == '/' ? root : here;
    it = follow(&at, text);
    go_to(&at, root);
    return it;
}

static int try_link(const char *name) {
    go_below(name);
    int it = judge(name);
    if (it == GOES) {
        it = unlinkat(here.fd, name, 0) < 0 && errno != ENOENT ? errno : 0;
        if (!it && removed++ < NAMED_MOST) name_place(said_length ? ", " : "");
    }
    if (!it) go_above(name);
    return it;
}

static int push(const char *name) {
    size_t n = strlen(name) + 1;
    if (names_length + n > NAMES_MOST) return ENOBUFS;
    memcpy(names + names_length, name, n);
    names_length += n;
    return 0;
}

static char *last(void) {
    char *at = names + names_length - 1;
    while (at > names && at[-1]) at--;
    return at;
}

static void drop(const char *name) { names_length = (size_t)(name - names); }

static int take_entry(const struct dirent64 *entry) {
    struct stat s;
    int type = entry->d_type;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) return 0;
    if (type == DT_UNKNOWN) {
        if (fstatat(here.fd, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) < 0) return is_gone(errno) ? 0 : errno;
        type = IFTODT(s.st_mode);
    }
    return type == DT_DIR ? push(entry->d_name) : type == DT_LNK ? try_link(entry->d_name) : 0;
}

/* Remove the links of the folder `here`, and push the folders in it. */
static int look(void) {
    static char entries[CHUNK] __attribute__((aligned(8)));
    struct stat s;
    if (fstat(here.fd, &s) < 0) return errno;
    here.which = which_of(&s);
    if (is_passed_over(here.which)) return 0;
    for (ssize_t n; (n = getdents64(here.fd, entries, sizeof entries)) != 0;) {
        if (n < 0) return is_gone(errno) ? 0 : errno;
        for (char *p = entries; p < entries + n; p += ((struct dirent64 *)p)->d_reclen) {
            int failed = take_entry((struct dirent64 *)p);
            if (failed) return failed;
        }
    }
    return 0;
}

static int move(const char *way, int flags) {
    int fd = openat(here.fd, way, flags);
    if (fd < 0) return errno;
    close(here.fd);
    here.fd = fd;
    return 0;
}

static int walk(void) {
    char way[WAY_MOST + NAME_MAX + 4] = ""; /* up from `here` */
    size_t length = 0;
    int failed = look();
    while (!failed && names_length) {
        char *name = last();
        if (*name == '/') {
            drop(name);
            drop(name = last());
            go_above(name);
            length += (size_t)sprintf(way + length, "../");
            if (length > WAY_MOST) failed = move(way, FOLDER), length = 0;
        } else {
            go_below(name);
            snprintf(way + length, sizeof way - length, "%s", name);
            failed = move(way, TO_READ | O_NOFOLLOW);
            if (is_gone(failed)) {
                go_above(name), drop(name), failed = 0;
                continue;
            }
            length = 0;
            if (!failed) failed = push("/");
            if (!failed) failed = look();
        }
    }
    return failed;
}

static int begin(const char *path, char *const *folders, int count) {
    struct stat s;
    names = malloc(NAMES_MOST);
    root.fd = open(path, FOLDER);
    if (!names || root.fd < 0 || fstat(root.fd, &s) < 0) return errno;
    root.which = which_of(&s);
    here.fd = openat(root.fd, ".", TO_READ);
    if (here.fd < 0) return errno;
    int failed = find_folder("proc", &proc);
    if (!failed) failed = find_folder(".sbx", &toolchain);
    while (!failed && hidden_count < count) {
        failed = find_folder(folders[hidden_count], &hidden[hidden_count]);
        hidden_count++;
    }
    return failed ? failed : find_kernels();
}

int remove_links(int count, char **arguments) {
    if (count > MOST_STRINGS) return 2;
    int failed = begin(arguments[0], arguments + 1, count - 1);
    if (!failed) failed = walk();
    if (failed) {
        said_length = 0;
        name_place("");
        printf("%s: %s", said, strerror(failed));
        return 1;
    }
    printf("%s", said);
    if (removed > NAMED_MOST) printf(" and %lu more", removed - NAMED_MOST);
    return 0;
}
