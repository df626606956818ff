/*
 * Declarations shared by the files of sbx-init.  main.c describes the program; init_requests.py and init_messages.py in
 * sandbox/session/init_connection/ name every frame.
 */
#ifndef SBX_INIT_H
#define SBX_INIT_H
#define _GNU_SOURCE
#include "channel.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROTOCOL = 9, HEADER = 5, MAX_FRAME = 1 << 20, CHUNK = 64 << 10, SLOTS = 32, MAIN_SLOT = 0, PATH_MOST = 4096 };
enum { DIED_BY_ITSELF = 0, DIED_INTERRUPTED = 1, DIED_NO_FORK = 3 };
enum { BYE_QUIT = 0, BYE_DEADLINE = 1, BYE_PROTOCOL = 2 };

/* ---- in.c: frames from the client ---- */

int take_key(char *given);
int read_frames(void); /* 0 at EOF */

/* ---- main.c ---- */

void handle_frame(char type, char *payload, size_t length);

/* ---- out.c: time, and frames to the client ---- */

#define NEW_CLIENT UINT64_MAX

uint64_t now_ns(void);
uint64_t now_ms(void);
void pause_us(long us);
void flush_out(void);
size_t out_queued(void);
int out_has_room(void);
char *reserve(size_t n);                     /* room for one frame, or NULL; commit() takes it */
void commit(char *at, char type, size_t length);
void send_frame(char type, const void *payload, size_t length);
void send_apart(char type, const void *payload, size_t length); /* before everything in the queue, and only once */
void heard(uint64_t position);
uint64_t tell_from(uint64_t position);
void send_ack(uint32_t id, int32_t error, uint32_t value);
void leave(uint8_t reason) __attribute__((noreturn));

/* ---- spool.c: the whole of a command's output, in a file of the sandbox ---- */

struct spool {
    char path[512];         /* empty: nothing is saved */
    uint32_t after, most;   /* a file is created for more bytes than `after`; it gets at most `most` of them */
    uint32_t saved;         /* bytes in the file; 0: there is none */
    char *held;             /* the first `after` bytes, until there are more */
    uint32_t held_length;
    int fd;
};

void spool_begin(struct spool *s, const char *path, size_t path_length, uint32_t after, uint32_t most);
void spool_feed(struct spool *s, const char *data, size_t length);
void spool_end(struct spool *s);

/* ---- capabilities.c ---- */

enum whose { OF_AGENT, OF_TESTS };

void drop_capabilities(enum whose whose); /* in a child, before its exec */

/* ---- user.c ---- */

enum { GROUPS_MOST = 64 };

struct user {
    uint32_t uid, gid;
    uint16_t group_count;
    gid_t groups[GROUPS_MOST];
};

size_t take_user(struct user *to, const char *p, size_t n);
const struct user *agent_user(void);
void handle_agent_user(uint32_t id, const char *p, size_t n);
void become_user(enum whose whose, const struct user *user, int output); /* in a child, before its exec */
void act_as_agent(int begins);

/* ---- slot.c: shells and terminals ---- */

enum kind { FREE, SHELL, TERMINAL };

struct slot {
    enum kind kind;
    pid_t pid;              /* 0: none */
    int output_fd;          /* what it prints: the reading end of a pipe, or the terminal's master */
    int output_write_fd;    /* of a shell: kept, so that what old background jobs print is read after a new start */
    int hung;               /* no process holds the terminal open at the moment */
    struct channel *channel; /* of a shell that runs */
    int unused_terminal_fd; /* of a shell that runs: the master of a terminal that nobody else can open */
    char cwd[PATH_MOST];    /* directory at the end of the last command, or of the next shell */
    char *input;            /* bytes that the terminal has not yet taken */
    size_t input_length, input_sent;
    int spoke;              /* it has just printed something */
    int pending;            /* a command has been given and has not ended; a terminal's process runs */
    uint32_t id;            /* of the command */
    int32_t code;           /* of the last command that ended */
    uint64_t ticks;         /* when it was given, in the unit of /proc/PID/stat */
    int died_because;
    struct spool spool;
};

extern struct slot slots[SLOTS];
extern int null_fd;

int slots_begin(const char *workdir); /* −1 without /dev/null */
uint16_t number(const struct slot *s);
uint64_t ticks_now(void);
void become_ordinary(enum whose whose, const struct user *user, int in, int out); /* in < 0: nothing to read */
void read_output(struct slot *s);
void drain(struct slot *s);
void forget_input(struct slot *s);
void forget_process(struct slot *s);
void send_exit(struct slot *s, uint32_t id, int32_t code, uint8_t because);
void slot_died(struct slot *s, int status);
void close_slot(struct slot *s);
void tell_slots(void);
int32_t exit_code(int status);
void close_fd(int *fd);

/* ---- shell.c ---- */

int open_shell(struct slot *s);
int restart_idle_shells(void);
void run_command(uint32_t id, struct slot *s, const char *command, size_t length);
void find_directory(struct slot *s);
void end_commands(void);
int await_end(int signals);
void forget_shell(struct slot *s);

/* ---- terminal.c ---- */

int open_pair(int *master, uint16_t rows, uint16_t columns);
void open_terminal(uint32_t id, struct slot *s, uint16_t rows, uint16_t columns, char **argv, char **envp, char *cwd);
void type_into(uint32_t id, struct slot *s, const char *data, size_t length);
void resize(uint32_t id, struct slot *s, uint16_t rows, uint16_t columns);
void push_input(struct slot *s);

/* ---- child.c: one child with exactly this environment ---- */

struct child {
    pid_t pid;
    int fd;
    uint32_t id;
};

extern struct child child;

enum { MOST_STRINGS = 256 };
enum { WORKDIR_MOST = 3840 }; /* PATH_MOST, less what a daemon has before it on its own host: it copies no more */
struct strings {
    char *cwd, *argv[MOST_STRINGS + 1], *envp[MOST_STRINGS + 1];
};

int parse_strings(struct strings *to, char *p, size_t n);
void start_child(uint32_t id, char *p, size_t n);
void read_child(void);
void child_ended(int status);
void kill_child(void);

/* ---- mounts.c ---- */

void handle_private_folders(uint32_t id, const char *p, size_t n);
int has_private_folders(void);

/* ---- guard.c ---- */

void guard_pid_1(int keeps_setuid); /* in a child, before its exec */

/* ---- kill.c ---- */

void end_slot(struct slot *s, int because); /* kill it and what its command runs; its death is told on return */
void kill_all(uint32_t id);
void kill_tests(uint32_t id);
void reap(void);

/* ---- ipc.c ---- */

void remove_ipc(void);

/* ---- files.c ---- */

void handle_write(uint32_t id, char *p, size_t n);
void handle_read(uint32_t id, char *p, size_t n);
void make_parents(char *path);
int put_aside(const char *path);
void take_path(char *path, const char *p, size_t n, uint16_t length, size_t at);

/* ---- links.c: not PID 1 ---- */

int remove_links(int count, char **arguments); /* its exit code */

#endif
