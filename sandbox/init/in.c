/*
 * Reads frames from the client: finds where they begin, and whether they are complete.
 *
 * A new stream begins with the container's key, which nothing inside knows.  Everything before it belongs to a broken
 * stream: half of a frame, or frames that the new stream sends again.  So every byte is searched for the key, and nothing
 * else makes this process drop anything.  Each frame has a checksum: a frame that was completed with the first bytes of a
 * key, because these arrived separately, is invalid.
 */
#include "init.h"

enum { KEY = 32, CLIENT_HEADER = 9 }; /* type u8, length u32, checksum u32 of both and of the payload */

static char key[KEY];  /* its first byte occurs only once in it */
static size_t matched; /* number of bytes of the key that the stream ends with */
static char in[CLIENT_HEADER + MAX_FRAME];
static size_t in_length;
static int lost;       /* the stream is not at a frame: a key marks where frames begin again */

/* Store the key, and erase it from the command line that /proc shows.  Returns 0 for an invalid key. */
int take_key(char *given) {
    size_t n = strlen(given);
    if (n == KEY) memcpy(key, given, KEY);
    memset(given, 0, n);
    return n == KEY;
}

static uint32_t table[256];

static uint32_t crc32(uint32_t sum, const char *p, size_t n) {
    for (uint32_t i = 0; !table[255] && i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        table[i] = c;
    }
    sum = ~sum;
    while (n--) sum = table[(sum ^ (uint8_t)*p++) & 0xFF] ^ (sum >> 8);
    return ~sum;
}

/* Return the end of the last key in these bytes; 0 without one. */
static size_t end_of_key(const char *p, size_t n) {
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == key[matched]) matched++;
        else matched = p[i] == key[0];
        if (matched == KEY) matched = 0, end = i + 1;
    }
    return end;
}

/* Return the length of the first frame from `at`, 0 for an incomplete one, −1 for an invalid one. */
static ssize_t whole_frame(size_t at) {
    uint32_t length, sum;
    if (in_length - at < CLIENT_HEADER) return 0;
    memcpy(&length, in + at + 1, 4), memcpy(&sum, in + at + 5, 4);
    if (length > MAX_FRAME) return -1;
    if (in_length - at < CLIENT_HEADER + length) return 0;
    return crc32(crc32(0, in + at, 5), in + at + CLIENT_HEADER, length) == sum ? (ssize_t)(CLIENT_HEADER + length) : -1;
}

int read_frames(void) {
    ssize_t n = read(0, in + in_length, sizeof in - in_length);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return 0;
    size_t at = end_of_key(in + in_length, (size_t)n), used = 0;
    if (at) at += in_length, lost = 0;
    in_length += (size_t)n;
    ssize_t frame = 0;
    for (; !lost && (frame = whole_frame(at)) > 0; at += (size_t)frame)
        handle_frame(in[at], in + at + CLIENT_HEADER, (size_t)frame - CLIENT_HEADER);
    if (frame < 0) lost = 1;
    used = lost ? in_length : at;
    memmove(in, in + used, in_length - used);
    in_length -= used;
    return 1;
}
