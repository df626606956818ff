/*
 * relay: carries the connections that programs of a sandbox make to 127.0.0.1:PORT to a process outside, which can
 * only start commands here: each of its requests is one call of this program.
 *
 *   relay exchange NAME PORT INCARNATION ACKNOWLEDGED MOST WAIT_MS OFFSET [BASE64]
 *   relay stop NAME
 *
 * The first exchange starts a daemon, which listens on the port, and for exchanges at an abstract socket of that NAME.
 * There is one stream of bytes in each direction, of frames of all connections.  An exchange hands over what is in
 * BASE64, which begins at OFFSET of the stream inwards, and prints
 *
 *   @sbx INCARNATION TAKEN OFFSET BASE64=
 *
 * with up to MOST bytes of the stream outwards from ACKNOWLEDGED on, as soon as there are any, or after WAIT_MS; TAKEN
 * bytes of the stream inwards have arrived.  So an exchange can be repeated: bytes that have arrived are not taken
 * twice, and bytes are kept until they are acknowledged.  A daemon has a random INCARNATION, and takes nothing from who
 * expects another: with it, all connections have ended.  It ends when nobody has called for a while.
 *
 * A frame is: type u8, connection u32 LE, length u32 LE, data.  The types: O, a connection was made (outwards only); D,
 * data; E, no more data in this direction; R, the connection is gone.  The other end: frames.py, connections.py.
 *
 * The exit code is 0, or an errno: EADDRINUSE if a program of the sandbox listens on the port.
 */
#include "relay.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/un.h>

enum { STARTS = 100, PAUSE_US = 10000 };

static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t decode(const char *text, char *data, size_t most) {
    size_t n = 0;
    uint32_t bits = 0;
    int held = 0;
    for (; *text != 0 && *text != '='; text++) {
        const char *at = strchr(ALPHABET, *text);
        if (at == NULL) exit(EINVAL);
        bits = bits << 6 | (uint32_t)(at - ALPHABET), held += 6;
        if (held < 8) continue;
        if (n == most) exit(E2BIG);
        held -= 8, data[n++] = (char)(bits >> held);
    }
    return n;
}

static void print_encoded(const unsigned char *data, size_t n) {
    for (; n > 0; data += 3, n -= n < 3 ? n : 3) {
        uint32_t bits = (uint32_t)data[0] << 16;
        if (n > 1) bits |= (uint32_t)data[1] << 8;
        if (n > 2) bits |= data[2];
        putchar(ALPHABET[bits >> 18]), putchar(ALPHABET[bits >> 12 & 63]);
        putchar(n > 1 ? ALPHABET[bits >> 6 & 63] : '='), putchar(n > 2 ? ALPHABET[bits & 63] : '=');
    }
}

static socklen_t control_address(const char *name, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "longshore-relay-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static int open_socket(int family) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) exit(errno);
    return fd;
}

static int call_daemon(const char *name) {
    struct sockaddr_un address;
    socklen_t length = control_address(name, &address);
    int fd = open_socket(AF_UNIX);
    if (connect(fd, (struct sockaddr *)&address, length) == 0) return fd;
    close(fd);
    return -1;
}

static int listen_on_loopback(int port) {
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1, listener = open_socket(AF_INET);
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&loopback, sizeof loopback) < 0) exit(errno);
    if (listen(listener, CONNECTIONS) < 0) exit(errno);
    return listener;
}

static void leave_caller(int listener, int control) {
    int nothing = open("/dev/null", O_RDWR);
    setsid();
    signal(SIGPIPE, SIG_IGN);
    for (int fd = 0; fd < 3; fd++) dup2(nothing, fd);
    for (int fd = 3; fd < 1024; fd++)
        if (fd != control && fd != listener) close(fd);
    if (chdir("/") < 0) _exit(errno);
}

/* Starts the daemon, unless another caller has just done so. */
static void start_daemon(const char *name, int port) {
    struct sockaddr_un address;
    socklen_t length = control_address(name, &address);
    uint64_t incarnation;
    int control = open_socket(AF_UNIX);
    if (bind(control, (struct sockaddr *)&address, length) < 0) { close(control); return; }
    int listener = listen_on_loopback(port);
    if (getrandom(&incarnation, sizeof incarnation, 0) < 0 || listen(control, CALLERS) < 0) exit(errno);
    pid_t child = fork();
    if (child < 0) exit(errno);
    if (child == 0) {
        leave_caller(listener, control);
        serve(incarnation | 1, listener, control); /* 0 is nobody's */
    }
    close(control), close(listener);
}

static int receive_all(int fd, void *data, size_t n) {
    for (char *p = data; n > 0;) {
        ssize_t got = recv(fd, p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return 0;
        p += got, n -= (size_t)got;
    }
    return 1;
}

static int exchange(int fd, const struct request *request, const char *data) {
    struct reply reply;
    static unsigned char got[MOST_OUTWARDS];
    if (!send_all(fd, request, sizeof *request) || !send_all(fd, data, request->length)) return ECONNRESET;
    if (!receive_all(fd, &reply, sizeof reply) || reply.length > sizeof got) return ECONNRESET;
    if (!receive_all(fd, got, reply.length)) return ECONNRESET;
    printf("@sbx %llu %llu %llu ", (unsigned long long)reply.incarnation, (unsigned long long)reply.taken,
           (unsigned long long)reply.offset);
    print_encoded(got, reply.length);
    puts("=");
    return fflush(stdout) == 0 ? 0 : EIO;
}

int main(int argc, char **argv) {
    static char data[MOST_INWARDS];
    struct request request = {.wait_ms = QUIT};
    int fd;
    if (argc == 3 && strcmp(argv[1], "stop") == 0) {
        fd = call_daemon(argv[2]);
        return fd < 0 ? 0 : exchange(fd, &request, data);
    }
    if ((argc != 9 && argc != 10) || strcmp(argv[1], "exchange") != 0) return EINVAL;
    request.incarnation = strtoull(argv[4], NULL, 10);
    request.acknowledged = strtoull(argv[5], NULL, 10);
    request.most = (uint32_t)strtoul(argv[6], NULL, 10);
    if (request.most > MOST_OUTWARDS) request.most = MOST_OUTWARDS;
    request.wait_ms = (uint32_t)strtoul(argv[7], NULL, 10);
    request.offset = strtoull(argv[8], NULL, 10);
    if (argc == 10) request.length = (uint32_t)decode(argv[9], data, sizeof data);
    for (int attempt = 0; (fd = call_daemon(argv[2])) < 0; attempt++) {
        if (attempt == STARTS) return ECONNREFUSED;
        start_daemon(argv[2], atoi(argv[3]));
        usleep(PAUSE_US);
    }
    return exchange(fd, &request, data);
}
