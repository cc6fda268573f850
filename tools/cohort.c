/* cohort.c - the `cohort` command: finds the command, runs it, and turns its error into one line.
 *
 * Contract: exit 0, or 1 with one line on stderr that names the command, the database and the error.
 */
#include <signal.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "tools/tool.h"

const struct tool_command tool_commands[] = {
    {"create", cmd_create, "DB", "Makes an empty database; it must not exist."},
    {"info", cmd_info, "DB", "What the database is: preset, codec, geometry, sizes."},
    {"get", cmd_get, "DB KEY", "Prints the value of a key."},
    {"put", cmd_put, "DB KEY [VALUE]", "Inserts or replaces; VALUE - is read from stdin."},
    {"del", cmd_del, "DB KEY", "Deletes a key; it must exist."},
    {"scan", cmd_scan, "DB", "Prints entries in key order: key, tab, value."},
    {"load", cmd_load, "DB [FILE]", "Puts entries read from FILE or stdin: lines key, tab, value."},
    {"dump", cmd_dump, "DB [FILE]", "Writes every entry, for `load`; or the device's bytes."},
    {"trees", cmd_trees, "DB", "Named trees, each with its number of entries."},
    {"tree-create", cmd_tree_create, "DB NAME", "Makes a named tree; it must not exist."},
    {"tree-drop", cmd_tree_drop, "DB NAME", "Drops a named tree with its entries."},
    {"tree-rename", cmd_tree_rename, "DB FROM TO", "Gives a named tree another name."},
    {"tree-truncate", cmd_tree_truncate, "DB NAME", "Empties a named tree."},
    {"prepared", cmd_prepared, "DB", "Prepared transactions: lists, commits or aborts them."},
    {"check", cmd_check, "DB", "Verifies every page, image, place and zone."},
    {"stat", cmd_stat, "DB", "Counters of the database since it was opened, and its sizes."},
    {"probe", cmd_probe, "DEVICE", "Finds the drive's erase unit; overwrites the drive."},
    {"device", cmd_device, "readtest DEVICE", "Random reads by size, alignment and queue depth."},
    {"bench", cmd_bench, "NAME", "Benchmarks; `cohort bench --help` lists them."},
    {"report", cmd_report, "RUN.json...", "Results of benches as one page of HTML."},
    {"options", cmd_options, "", "Every option with its value, range and meaning."},
    {"version", cmd_version, "", "Version of the tool and library."},
    {"help", cmd_help, "[COMMAND]", "This list, or the help of one command."},
};
const size_t tool_command_count = CH_ARRAY_LEN(tool_commands);

static void
print_commands(FILE *out)
{
    fprintf(out, "usage: cohort COMMAND ... [--json] [--quiet]\n"
                 "DB is a directory, a block device or a sim: URI.\n\n");
    for (size_t i = 0; i < tool_command_count; i++)
        fprintf(out, "  %-13s %-14s %s\n", tool_commands[i].name, tool_commands[i].usage,
                tool_commands[i].brief);
}

static const struct tool_command *
find_command(const char *name)
{
    for (size_t i = 0; i < tool_command_count; i++)
        if (strcmp(tool_commands[i].name, name) == 0)
            return &tool_commands[i];
    return NULL;
}

static int
list_commands(const struct tool *t)
{
    int rc = 0;

    if (!t->json)
        print_commands(stdout);
    for (size_t i = 0; t->json && i < tool_command_count && rc == 0; i++) {
        struct json_object *o = json_object_new_object();

        rc = o == NULL ? CH_FAIL(COHORT_ENOMEM, "JSON")
                       : report_text(o, "command", tool_commands[i].name);
        if (rc == 0)
            rc = report_text(o, "arguments", tool_commands[i].usage);
        if (rc == 0)
            rc = report_text(o, "meaning", tool_commands[i].brief);
        if (rc == 0)
            rc = tool_json_print(json_object_get(o), stdout);
        json_object_put(o);
    }
    return rc != 0 ? rc : tool_flush();
}

int
cmd_help(struct tool *t, int argc, char **argv)
{
    char help[] = "--help";
    char *words[] = {NULL, help, NULL};
    const struct tool_command *c;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 0, 1, &pos, &n);
    t->where = NULL;
    if (rc != 0 || t->help)
        return rc;
    if (n == 0)
        return list_commands(t);
    c = find_command(pos[0]);
    if (c == NULL)
        return CH_FAIL(COHORT_EINVAL, "no command '%s'; see `cohort help`", pos[0]);
    t->command = c->name;
    words[0] = pos[0];
    return c->run(t, 2, words);
}

int
cmd_version(struct tool *t, int argc, char **argv)
{
    struct json_object *o;
    char **pos = NULL;
    int n = 0, rc;

    rc = tool_args(t, argc, argv, NULL, 0, 0, 0, &pos, &n);
    if (rc != 0 || t->help)
        return rc;
    if (!t->json) {
        printf("cohort %s\n", cohort_version());
        return tool_flush();
    }
    o = json_object_new_object();
    if (o == NULL ||
        json_object_object_add(o, "version", json_object_new_string(cohort_version())) != 0)
        return CH_FAIL(COHORT_ENOMEM, "JSON");
    return tool_json_print(o, stdout);
}

/* What the system said to a failed call, where the text leaves it out. Elsewhere errno is of some
 * other call. */
static void
print_cause(const struct cohort_error *e)
{
    const char *cause = strerror(e->sys_errno);

    if (e->code == COHORT_EIO && e->sys_errno != 0 && strstr(e->text, cause) == NULL)
        fprintf(stderr, ": %s", cause);
}

/* One line, whatever the text holds. */
static void
print_failure(const struct tool *t, int rc)
{
    const struct cohort_error *e = cohort_last_error();

    fprintf(stderr, "cohort %s: ", t->command);
    if (t->where != NULL) {
        tool_print_bytes(stderr, t->where, strlen(t->where), false);
        fputs(": ", stderr);
    }
    fputs(cohort_strerror(rc), stderr);
    if (e->code == rc && e->text[0] != '\0') {
        fputs(": ", stderr);
        tool_print_bytes(stderr, e->text, strlen(e->text), false);
        print_cause(e);
    }
    fputc('\n', stderr);
}

static void
print_log(void *arg, enum cohort_log_level level, const char *text)
{
    const struct tool *t = arg;

    (void)level;
    if (t->verbose)
        fprintf(stderr, "cohort: %s\n", text);
}

int
main(int argc, char **argv)
{
    struct tool t = {0};
    const struct tool_command *c;
    int rc;

    t.command = "help";
    cohort_options_init(&t.options);
    /* A reader that leaves is an error of our write, reported as any other. */
    signal(SIGPIPE, SIG_IGN);
    /* So is a file that ulimit -f does not let grow: "no space left" rather than death. */
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_commands(stderr);
        return EXIT_FAILURE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_commands(stdout);
        return EXIT_SUCCESS;
    }
    c = find_command(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
    if (c == NULL) {
        fprintf(stderr, "cohort: no command '%s'; see `cohort help`\n", argv[1]);
        return EXIT_FAILURE;
    }
    t.command = c->name;
    cohort_set_log(print_log, &t);
    rc = c->run(&t, argc - 1, argv + 1);
    if (rc != 0)
        print_failure(&t, rc);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
