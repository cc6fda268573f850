/* options.h - the options of cohort_open() as a table: check, parse and print by name.
 *
 * The table is src/base/options.def; cohort_options_init(), _set() and _print() of the public API
 * are implemented on top of it in options.c.
 */
#ifndef CH_BASE_OPTIONS_H
#define CH_BASE_OPTIONS_H

#include "base/base.h"

enum {
    CH_OPTION_TEXT_BYTES = 32 /* room for any value as text */
};

/* Checks every field against its range, and struct_bytes against this library's size. EOPTION names
 * option, value and range. */
CH_NODISCARD int ch_options_check(const struct cohort_options *o);

/* Value of option `name` from text: "64M", "123", "sync". EOPTION names option, value and range. */
CH_NODISCARD int ch_option_parse(const char *name, const char *text, uint64_t *value);

/* Text of a value of option `name`, such that ch_option_parse() gives the value back: an enum's
 * name, bytes with the largest suffix that divides them, else the number. Also for values out of
 * range and unknown names (the number). */
void ch_option_format(const char *name, uint64_t value, char text[CH_OPTION_TEXT_BYTES]);

/* Replaces every option that is left to the preset by the value that `preset` (enum cohort_preset) stands for; options that
 * were set stay. The table is in presets.c. */
void ch_options_resolve(struct cohort_options *o, uint64_t preset);
/* False: a preset whose number is taken and whose way of writing is not carried out yet; it is refused at creation. */
bool ch_preset_is_whole(uint64_t preset);

#endif
