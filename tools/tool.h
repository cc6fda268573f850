/* tool.h - what the commands of `cohort` share.
 *
 * Every command is int cmd_x(struct tool *t, int argc, char **argv), argv[0] being its own name. It
 * returns 0 or a COHORT_E* whose text is in the error record; main() prints that as one line on
 * stderr that names the command, the database and the error, and exits 1.
 */
#ifndef CH_TOOLS_TOOL_H
#define CH_TOOLS_TOOL_H

#include <json-c/json.h>

#include "base/base.h"
#include "tools/args.h"

struct tool_command;

struct tool {
    const char *command;
    const char *where; /* database named on the command line, for messages; NULL = none */
    const struct tool_command *bench; /* what `cohort bench` runs; NULL = another command */
    bool json, quiet, hex, help, verbose;
    struct cohort_options options;
};

struct tool_command {
    const char *name;
    int (*run)(struct tool *t, int argc, char **argv);
    const char *usage; /* positional arguments */
    const char *brief;
};
extern const struct tool_command tool_commands[];
extern const size_t tool_command_count;

int cmd_create(struct tool *t, int argc, char **argv);
int cmd_info(struct tool *t, int argc, char **argv);
int cmd_get(struct tool *t, int argc, char **argv);
int cmd_put(struct tool *t, int argc, char **argv);
int cmd_del(struct tool *t, int argc, char **argv);
int cmd_scan(struct tool *t, int argc, char **argv);
int cmd_dump(struct tool *t, int argc, char **argv);
/* dump --root, --log, --page, --zone (cmd_format.c): what stands on the device, the engine not started. */
#define FORMAT_NONE UINT64_MAX
struct format_what {
    bool root, log;
    uint64_t page, zone; /* FORMAT_NONE = not asked for */
};
CH_NODISCARD int format_dump(struct tool *t, const struct format_what *what);

int cmd_load(struct tool *t, int argc, char **argv);
int cmd_trees(struct tool *t, int argc, char **argv);
int cmd_tree_create(struct tool *t, int argc, char **argv);
int cmd_tree_drop(struct tool *t, int argc, char **argv);
int cmd_tree_rename(struct tool *t, int argc, char **argv);
int cmd_tree_truncate(struct tool *t, int argc, char **argv);
int cmd_prepared(struct tool *t, int argc, char **argv);
int cmd_check(struct tool *t, int argc, char **argv);
int cmd_stat(struct tool *t, int argc, char **argv);
int cmd_report(struct tool *t, int argc, char **argv);
int cmd_probe(struct tool *t, int argc, char **argv);
int cmd_device(struct tool *t, int argc, char **argv);
int cmd_options(struct tool *t, int argc, char **argv);
int cmd_version(struct tool *t, int argc, char **argv);
int cmd_help(struct tool *t, int argc, char **argv);

/* Parses the command's own options together with the common ones (--json, --quiet, --verbose, --hex, -o,
 * --preset, --cache, --codec, --durability). Exactly min..max positional arguments must remain;
 * *pos points at them, and the first becomes t->where. With --help: prints the help, sets t->help
 * and returns 0; the command then returns at once. */
CH_NODISCARD int tool_args(struct tool *t, int argc, char **argv, const struct arg *own, size_t n,
                           int min, int max, char ***pos, int *count);
void tool_help(const struct tool *t, const struct arg *own, size_t n, FILE *out);

/* Opens t->where with t->options. */
CH_NODISCARD int tool_open(struct tool *t, cohort_db **db);
/* Opens the tree of that name, NULL: the main tree, whose handle is NULL. An error names the tree. */
CH_NODISCARD int tool_tree(cohort_db *db, cohort_txn *txn, const char *name, unsigned flags,
                           cohort_tree **tree);
/* Ends a transaction (NULL: there is none): commits when `rc` is 0, else aborts; the earlier error wins. */
CH_NODISCARD int tool_end(cohort_txn *txn, int rc);
/* Closes; the earlier error `rc` wins over that of closing. */
CH_NODISCARD int tool_close(cohort_db *db, int rc);
/* Whether `where` is a simulated drive whose contents vanish when it is closed. */
bool tool_is_volatile(const char *where);

/* A growing byte string; data is never NULL after a successful call. free() it. */
struct tool_bytes {
    uint8_t *data;
    size_t bytes, capacity;
};
CH_NODISCARD int tool_bytes_add(struct tool_bytes *b, const void *data, size_t n);
/* Appends text taken as it is, as hex digits, or with the escapes \\ \t \n \xNN. */
CH_NODISCARD int tool_bytes_hex(struct tool_bytes *b, const char *text, size_t n);
CH_NODISCARD int tool_bytes_unescape(struct tool_bytes *b, const char *text, size_t n);
/* Command line argument: as it is, or hex with --hex. */
CH_NODISCARD int tool_bytes_arg(struct tool *t, struct tool_bytes *b, const char *text);
/* Prints bytes as hex digits, or escaped so that they hold no tab, newline or control. */
void tool_print_bytes(FILE *out, const void *data, size_t n, bool hex);

/* Adds `name` as a JSON string, or, when the bytes are not UTF-8 text, `name`_hex. */
CH_NODISCARD int tool_json_bytes(struct json_object *o, const char *name, const void *data,
                                 size_t n, bool hex);
/* Prints one object as one line, and releases it. */
CH_NODISCARD int tool_json_print(struct json_object *o, FILE *out);
/* Flushes stdout: a full disk or a closed pipe is an error of the command. */
CH_NODISCARD int tool_flush(void);

#endif
