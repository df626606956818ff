/*
 * A loadable builtin of bash, which gives the image's bash another source of commands than its standard input.
 *
 * bash itself reads the agent's commands from here, at its top level, as it reads those that are typed at a terminal: no
 * loop and no command of ours is around them, and no variable, function, descriptor or trap is theirs and ours.  When
 * bash wants the first character of a command and has none, the command before has ended.
 *
 * PID 1 starts an interactive bash whose standard input is one line: it loads this builtin and calls it (shell.c).  The
 * names below are those of bash 4.2 to 5.3.
 */
#include "../channel.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ST_NONE = 0, BUILTIN_ENABLED = 1, DISCARD = 2, EX_BADUSAGE = 2, PST_HEREDOC = 0x020000 };
enum { EXECUTION_FAILURE = 1 };
enum { HISTORY_MOST = 16 << 10 }; /* bash copies a command once for each of its lines */

struct word {
    const char *text;
    int flags;
};
struct words {
    struct words *next;
    struct word *word;
};
typedef int run_builtin(struct words *words);
union input_location {
    void *file;
};
struct input {
    int type;
    char *name;
    union input_location location;
    int (*get)(void), (*unget)(int);
};
struct builtin {
    const char *name;
    run_builtin *function;
    int flags;
    const char *const *long_doc;
    const char *short_doc, *handle;
};

extern int current_command_line_count; /* lines of the command that is being read; 0 before its first one has ended */
extern int current_command_first_line_saved; /* in the history: its other lines are added */
extern int line_number, parser_state, shell_eof_token, remember_on_history, no_line_editing;
extern const char *const dist_version; /* such as 5.2 */
extern volatile int last_command_exit_value, interrupt_state;
extern struct input bash_input;
extern char *ps0_prompt __attribute__((weak)); /* since bash 4.4; what bash prints before the next command */
extern run_builtin *this_shell_builtin;
int enable_builtin(struct words *words);
struct builtin *builtin_address_internal(const char *name, int even_if_disabled);
char *get_string_value(const char *name);
void builtin_error(const char *format, ...);
void init_yy_io(int (*get)(void), int (*unget)(int), int type, const char *name, union input_location location);
int notify_and_cleanup(int most);
void bash_clear_history(void);
int bash_delete_last_history(void);
void set_pipestatus_from_exit(int code);
void parser_error(int line, const char *format, ...);
void run_unwind_protects(void);
void reset_parser(void);
void jump_to_top_level(int why);
void throw_to_top_level(void);

static struct channel *channel;
static pid_t self;
static uint32_t at, end;         /* of the text: what is read next, and its length */
static uint32_t command_at;      /* where the command that is being read begins */
static int continued;            /* the line after a last backslash has been read */
static run_builtin *set, *shopt, *local; /* bash's own */

/* PID 1 continues nothing but a stopped shell, so that the agent's trap for SIGCONT sees none of its signals. */
static void await_command(void) {
    sigset_t cont, before;
    const struct timespec now = {0, 0};
    alarm(0); /* TMOUT: the agent may think as long as it likes */
    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    sigprocmask(SIG_BLOCK, &cont, &before);
    channel->code = last_command_exit_value;
    if (state_of(channel) == COMMAND_RUNS) set_state(channel, COMMAND_ENDED);
    while (state_of(channel) != COMMAND_GIVEN) {
        kill(self, SIGSTOP);
        sigtimedwait(&cont, NULL, &now);
    }
    if (!end) line_number = 1; /* the line that began this was none of the agent's */
    at = 0, end = channel->length, continued = 0;
    set_state(channel, COMMAND_RUNS);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (interrupt_state) throw_to_top_level();
}

/* The text has ended within a command.  Returns what bash reads there. */
static int end_unfinished(void) {
    if (parser_state & PST_HEREDOC) return EOF; /* bash warns, and runs the command */
    if (!continued++ && end > 1 && channel->text[end - 2] == '\\') return '\n';
    parser_error(line_number, "syntax error: unexpected end of file");
    last_command_exit_value = EX_BADUSAGE;
    set_pipestatus_from_exit(EX_BADUSAGE);
    run_unwind_protects();
    reset_parser();
    shell_eof_token = 0;
    jump_to_top_level(DISCARD); /* an end of file would also end an interactive shell */
    return EOF;
}

/* A command that is too long is not in the history, as one that HISTIGNORE names. */
static void limit_history(void) {
    if (!current_command_line_count) command_at = at;
    if (at - command_at <= HISTORY_MOST || !current_command_first_line_saved || !remember_on_history) return;
    bash_delete_last_history();
    current_command_first_line_saved = 0;
}

/* bash reads PS0 as it prints the prompt of a line; it prints none here. */
static void begin_line(void) {
    if (&ps0_prompt) ps0_prompt = get_string_value("PS0");
    limit_history();
}

static int get_character(void) {
    if (at == 0 || channel->text[at - 1] == '\n') notify_and_cleanup(-1);
    if (at == end) {
        if (getpid() != self) return EOF;
        if (current_command_line_count) return end_unfinished();
        await_command();
    }
    if (at == 0 || channel->text[at - 1] == '\n') begin_line();
    return (unsigned char)channel->text[at++];
}

static int unget_character(int c) {
    if (at) at--;
    return c;
}

/* `set -o vi` and its neighbours would make bash read its standard input instead of what it reads. */
static int keep_input(run_builtin *function, struct words *words) {
    struct input before = bash_input;
    this_shell_builtin = function;
    int code = function(words);
    before.name = bash_input.name; /* the other one may be freed */
    bash_input = before;
    no_line_editing = 1;
    return code;
}

static int keep_input_in_set(struct words *words) { return keep_input(set, words); }
static int keep_input_in_shopt(struct words *words) { return keep_input(shopt, words); }

/* Before bash 5.1 the end of a function with `local -` sets vi and emacs too, and no command of ours is there. */
static int refuse_local_options(struct words *words) {
    for (struct words *each = words; each; each = each->next) {
        if (strcmp(each->word->text, "-") != 0) continue;
        builtin_error("-: before bash 5.1 it loses the next commands: save the options as in saved=$(set +o)");
        return EXECUTION_FAILURE;
    }
    this_shell_builtin = local;
    return local(words);
}

static void replace(const char *name, run_builtin *function, run_builtin **bashs) {
    struct builtin *builtin = builtin_address_internal(name, 1);
    *bashs = builtin->function;
    builtin->function = function;
}

static void remove_own_name(void) {
    struct word delete = {"-d", 0}, name = {"agent_input", 0};
    enable_builtin(&(struct words){&(struct words){NULL, &name}, &delete});
}

static int begin(struct words *words) {
    (void)words;
    struct channel *made =
        channel ? MAP_FAILED : mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, CHANNEL_FD, 0);
    if (made == MAP_FAILED) {
        builtin_error("only PID 1 can start a shell that reads from it");
        return 1;
    }
    channel = made;
    dup2(NOTHING_FD, STDIN_FILENO);
    dup2(OUTPUT_FD, STDOUT_FILENO), dup2(OUTPUT_FD, STDERR_FILENO);
    close(CHANNEL_FD), close(NOTHING_FD), close(OUTPUT_FD);
    self = getpid();
    no_line_editing = 1;
    if (&ps0_prompt) ps0_prompt = NULL;
    bash_clear_history();
    replace("set", keep_input_in_set, &set), replace("shopt", keep_input_in_shopt, &shopt);
    if (strcmp(dist_version, "5.0") <= 0) replace("local", refuse_local_options, &local);
    init_yy_io(get_character, unget_character, ST_NONE, "commands", (union input_location){NULL});
    remove_own_name();
    return 0;
}

static const char *const documentation[] = {"Read commands from PID 1.", NULL};
struct builtin agent_input_struct = {"agent_input", begin, BUILTIN_ENABLED, documentation, "agent_input", NULL};
