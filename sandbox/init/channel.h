/*
 * What PID 1 shares with the bash of a shell: a command to it, and its exit code back.
 *
 * It is memory without a descriptor and without a name, so that no command meets it by chance.  A command that looks for
 * it in /proc/PID/mem can forge its own shell's exit codes, on which no verdict depends; PID 1 checks what it reads.  Its
 * two sides wake each other by signals: bash stops itself when it wants a command, which PID 1 learns as its parent, and
 * PID 1 continues it.
 */
#ifndef SBX_CHANNEL_H
#define SBX_CHANNEL_H
#include <stdint.h>

enum { CHANNEL_FD = 3, NOTHING_FD = 4, OUTPUT_FD = 5 }; /* of bash until it begins: then its standard input and output */
enum { TEXT_MOST = 1 << 20 };
enum { SHELL_STARTS, COMMAND_GIVEN, COMMAND_RUNS, COMMAND_ENDED };

struct channel {
    uint32_t state;
    int32_t code;       /* `$?` at the end of the last command */
    uint32_t length;
    char text[TEXT_MOST]; /* ends with a newline */
};

static inline uint32_t state_of(const struct channel *c) { return __atomic_load_n(&c->state, __ATOMIC_SEQ_CST); }
static inline void set_state(struct channel *c, uint32_t state) { __atomic_store_n(&c->state, state, __ATOMIC_SEQ_CST); }

#endif
