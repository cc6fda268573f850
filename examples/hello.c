/* hello.c - a database in a directory: write, read, scan. Usage: hello DIRECTORY */
#include <cohort.h>

int
main(int argc, char **argv)
{
    struct cohort_options options;
    struct cohort_value value = {0};
    cohort_db *db = NULL;
    int rc;

    cohort_options_init(&options);
    rc = cohort_options_set(&options, "create", "yes");
    if (rc == 0)
        rc = cohort_open(argc > 1 ? argv[1] : "./hello-data", &options, &db);
    if (rc == 0)
        rc = cohort_put(db, "hello", 5, "world", 5); /* durable when it returns */
    if (rc == 0)
        rc = cohort_get(db, "hello", 5, &value);
    if (rc == 0)
        printf("hello, %.*s\n", (int)value.bytes, (const char *)value.data);
    else
        fprintf(stderr, "%s: %s\n", cohort_strerror(rc), cohort_last_error()->text);
    cohort_value_free(&value);
    return cohort_close(db) == 0 && rc == 0 ? 0 : 1;
}
