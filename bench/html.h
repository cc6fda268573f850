/* html.h - text and charts of a page of HTML, written to a stream. Pure but for the stream.
 *
 * Charts are inline SVG that uses the page's colours by class (c0 .. c8, grid, ink), so that one style sheet serves
 * light and dark. Every text passes html_text(): nothing in a run's fields can become markup. A value that is
 * not a number is left out. Write errors show in ferror() of the stream at the end.
 */
#ifndef CH_BENCH_HTML_H
#define CH_BENCH_HTML_H

#include <stddef.h>
#include <stdio.h>

enum {
    HTML_COLOURS = 9,
    HTML_SERIES_MAX = 24
};

void html_text(FILE *out, const char *text); /* escaped; NULL: nothing */
/* A number for people: three or four significant digits, "?" when it is none. */
void html_number(FILE *out, double v);
/* The head of the page up to <body>, style included; and its end. */
void html_begin(FILE *out, const char *title);
void html_end(FILE *out);
/* Legend: a swatch and a name for each; colours in order, and after the last again with dashes. */
void html_legend(FILE *out, const char *const *names, size_t n);

struct html_line {
    const char *name;
    const double *x, *y;
    size_t n;
};
struct html_axes {
    const char *title, *x, *y;  /* labels, units included */
    const char *const *x_names; /* NULL: x are numbers; else x[i] = index of a name */
    size_t x_count;             /* names */
    double y_line;              /* drawn as reference when > 0 */
};
void html_lines(FILE *out, const struct html_axes *a, const struct html_line *lines, size_t n);

/* Horizontal bars, each a stack of `parts` values, and `total` behind it. */
struct html_bar {
    const char *name;
    const double *parts; /* as many as names */
    double total;        /* printed; NAN: none */
};
void html_bars(FILE *out, const char *title, const char *unit, const char *const *part_names,
               size_t parts, const struct html_bar *bars, size_t n);

/* One row of letters (cohort_zone_map()) for each moment; zones across, joined where there are many. */
void html_zone_maps(FILE *out, const char *title, const char *const *maps, const double *at,
                    size_t n);

#endif
