/* html.c - see html.h. */
#include "bench/html.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/base.h"

enum {
    LINES_W = 480,
    LINES_H = 260,
    LEFT = 64,
    RIGHT = 16,
    TOP = 14,
    BOTTOM = 46,
    BARS_W = 960,
    BAR_H = 22,
    BAR_GAP = 8,
    BAR_LEFT = 210,
    BAR_RIGHT = 90,
    ZONES_W = 960,
    ZONES_ACROSS = 192,
    SHADES = 10,
    ZONES_LEFT = 64
};

static const char style[] =
    "<style>\n"
    ":root{--page:#fcfcfb;--ink:#1b1b1a;--soft:#5f5e5a;--grid:#e3e2dd;--card:#ffffff;"
    "--c0:#2a78d6;--c1:#eb6834;--c2:#1baf7a;--c3:#eda100;--c4:#4a3aa7;--c5:#e34948;--c6:#e87ba4;"
    "--c7:#008300;--c8:#8a8983;color-scheme:light dark}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#1a1a19;--ink:#f2f1ec;--soft:#b5b3ab;"
    "--grid:#3a3a37;--card:#232322;--c0:#3987e5;--c1:#d95926;--c2:#199e70;--c3:#c98500;"
    "--c4:#9085e9;--c5:#e66767;--c6:#d55181;--c7:#3fa53f;--c8:#8f8e88}}\n"
    "body{background:var(--page);color:var(--ink);font:14px/1.45 system-ui,sans-serif;margin:24px "
    "auto;max-width:1060px;padding:0 16px}\n"
    "h1{font-size:22px;margin:0 0 4px}h2{font-size:17px;margin:32px 0 8px}h3{font-size:14px;"
    "margin:14px 0 4px}p{margin:4px 0 10px;color:var(--soft)}\n"
    "svg{display:block;width:100%;height:auto}figure{margin:0 0 14px;background:var(--card);"
    "border:1px solid var(--grid);border-radius:6px;padding:10px 12px}\n"
    "figcaption{font-weight:600;margin-bottom:4px}.row{display:grid;grid-template-columns:"
    "repeat(auto-fit,minmax(440px,1fr));gap:12px}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "font-size:13px;white-space:nowrap}\n"
    "th,td{padding:3px 9px;text-align:right;border-bottom:1px solid var(--grid)}th{color:var(--"
    "soft);font-weight:600}th.t,td.t{text-align:left}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:12px;margin:2px 0 6px;color:var(--"
    "soft)}.legend svg{display:inline-block;width:22px;height:10px;margin-right:5px}\n"
    "text{font:12px system-ui,sans-serif;fill:var(--soft)}text.ink{fill:var(--ink)}.grid{stroke:"
    "var(--grid);stroke-width:1}.ref{stroke:var(--soft);stroke-dasharray:2 4}\n"
    ".l{fill:none;stroke-width:2;stroke-linejoin:round}.d1{stroke-dasharray:7 4}.d2{stroke-"
    "dasharray:2 3}\n"
    ".z{stroke:none;fill:var(--c0)}.zo{stroke:none;fill:var(--c1)}.zm{stroke:none;fill:var(--c8)}."
    "zl{stroke:none;fill:var(--c3)}\n"
    ".s{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px;vertical-"
    "align:-1px}\n"
    "#S#</style>\n";

void
html_text(FILE *out, const char *text)
{
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;

        if (c == '&')
            fputs("&amp;", out);
        else if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c == '\'')
            fputs("&#39;", out);
        else if (c < ' ')
            fputc(' ', out);
        else
            fputc(c, out);
    }
}

static const char *
number_text(double v, char buf[32])
{
    double a = fabs(v);

    if (!isfinite(v))
        return "?";
    if (a >= 1e9)
        snprintf(buf, 32, "%.3gG", v / 1e9);
    else if (a >= 1e6)
        snprintf(buf, 32, "%.3gM", v / 1e6);
    else if (a >= 1e4)
        snprintf(buf, 32, "%.4gk", v / 1e3);
    else if (a >= 100.0)
        snprintf(buf, 32, "%.0f", v);
    else
        snprintf(buf, 32, "%.3g", v);
    return buf;
}

void
html_number(FILE *out, double v)
{
    char buf[32];

    fputs(number_text(v, buf), out);
}

static void
colour_rules(FILE *out)
{
    for (int i = 0; i < HTML_COLOURS; i++)
        fprintf(out, ".l.c%d{stroke:var(--c%d)}.p.c%d{fill:var(--c%d)}", i, i, i, i);
    fputc('\n', out);
}

void
html_begin(FILE *out, const char *title)
{
    const char *slot = strstr(style, "#S#");

    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    html_text(out, title);
    fputs("</title>\n", out);
    fwrite(style, 1, (size_t)(slot - style), out);
    colour_rules(out);
    fputs(slot + 3, out);
    fputs("</head>\n<body>\n<h1>", out);
    html_text(out, title);
    fputs("</h1>\n", out);
}

void
html_end(FILE *out)
{
    fputs("</body>\n</html>\n", out);
}

void
html_legend(FILE *out, const char *const *names, size_t n)
{
    fputs("<div class=\"legend\">", out);
    for (size_t i = 0; i < n; i++) {
        fprintf(out,
                "<span><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><line class=\"l c%zu d%zu\" "
                "style=\"stroke-width:4\" x1=\"1\" y1=\"5\" x2=\"21\" y2=\"5\"/></svg>",
                i % HTML_COLOURS, (size_t)ch_min_u64(i / HTML_COLOURS, 2));
        html_text(out, names[i]);
        fputs("</span>", out);
    }
    fputs("</div>\n", out);
}

/* ---- lines ---- */

struct scale {
    double low, high, step; /* of the values */
    double at, span;        /* pixels: low is at `at`, high at `at + span` */
};

static double
place(const struct scale *s, double v)
{
    return s->at + (v - s->low) / (s->high - s->low) * s->span;
}

/* About `ticks` round steps over low .. high. */
static void
scale_init(struct scale *s, double low, double high, int ticks)
{
    double raw, power;

    if (!(high > low))
        high = low + (low > 0 ? low : 1.0);
    raw = (high - low) / ticks;
    power = pow(10.0, floor(log10(raw)));
    s->step = raw / power <= 1.0   ? power
              : raw / power <= 2.0 ? 2.0 * power
              : raw / power <= 5.0 ? 5.0 * power
                                   : 10.0 * power;
    s->low = floor(low / s->step + 1e-9) * s->step;
    s->high = ceil(high / s->step - 1e-9) * s->step;
}

static void
widen(double v, double *low, double *high)
{
    if (isfinite(v)) {
        *low = fmin(*low, v);
        *high = fmax(*high, v);
    }
}

/* Marks of an axis, less one. */
static int
steps_of(const struct scale *a)
{
    return (int)((a->high - a->low) / a->step + 0.5);
}

static void
draw_y_axis(FILE *out, const struct html_axes *a, const struct scale *y)
{
    char buf[32];

    for (int i = 0; i <= steps_of(y); i++) {
        double v = y->low + i * y->step;
        double at = place(y, v);

        fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                LINES_W - RIGHT, at, at);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 6,
                at + 4.0, number_text(fabs(v) < y->step / 1e6 ? 0.0 : v, buf));
    }
    if (a->y_line > 0)
        fprintf(out, "<line class=\"ref\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT,
                LINES_W - RIGHT, place(y, a->y_line), place(y, a->y_line));
    fprintf(out, "<text transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
            TOP + (LINES_H - TOP - BOTTOM) / 2);
    html_text(out, a->y);
    fputs("</text>\n", out);
}

static void
draw_x_axis(FILE *out, const struct html_axes *a, const struct scale *x)
{
    char buf[32];
    size_t skip = a->x_count / 9 + 1;

    if (a->x_names != NULL) {
        for (size_t i = 0; i < a->x_count; i += skip) {
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", place(x, (double)i),
                    LINES_H - BOTTOM + 18);
            html_text(out, a->x_names[i]);
            fputs("</text>\n", out);
        }
    } else {
        for (int i = 0; i <= steps_of(x); i++) {
            double v = x->low + i * x->step;

            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                    place(x, v), LINES_H - BOTTOM + 18,
                    number_text(fabs(v) < x->step / 1e6 ? 0.0 : v, buf));
        }
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
            LEFT + (LINES_W - LEFT - RIGHT) / 2, LINES_H - 8);
    html_text(out, a->x);
    fputs("</text>\n", out);
}

static void
draw_line(FILE *out, const struct html_line *l, size_t index, const struct scale *x,
          const struct scale *y)
{
    bool pen = false;

    fprintf(out, "<path class=\"l c%zu d%zu\" d=\"", index % HTML_COLOURS,
            (size_t)ch_min_u64(index / HTML_COLOURS, 2));
    for (size_t i = 0; i < l->n; i++) {
        if (!isfinite(l->y[i]) || !isfinite(l->x[i])) {
            pen = false;
            continue;
        }
        fprintf(out, "%c%.1f %.1f", pen ? 'L' : 'M', place(x, l->x[i]), place(y, l->y[i]));
        pen = true;
    }
    fputs("\"/>\n", out);
    for (size_t i = 0; i < l->n && l->n <= 64; i++) {
        char bx[32], by[32];

        if (!isfinite(l->y[i]) || !isfinite(l->x[i]))
            continue;
        fprintf(out, "<circle class=\"p c%zu\" r=\"3.5\" cx=\"%.1f\" cy=\"%.1f\"><title>",
                index % HTML_COLOURS, place(x, l->x[i]), place(y, l->y[i]));
        html_text(out, l->name);
        fprintf(out, ": %s, %s</title></circle>\n", number_text(l->x[i], bx),
                number_text(l->y[i], by));
    }
}

void
html_lines(FILE *out, const struct html_axes *a, const struct html_line *lines, size_t n)
{
    struct scale x = {.at = LEFT, .span = LINES_W - LEFT - RIGHT};
    struct scale y = {.at = LINES_H - BOTTOM, .span = -(double)(LINES_H - TOP - BOTTOM)};
    double low = HUGE_VAL, high = -HUGE_VAL, top = a->y_line;
    double zero = 0.0;
    const char *names[HTML_SERIES_MAX];

    n = ch_min_u64(n, HTML_SERIES_MAX);
    for (size_t k = 0; k < n; k++) {
        names[k] = lines[k].name;
        for (size_t i = 0; i < lines[k].n; i++) {
            widen(lines[k].x[i], &low, &high);
            widen(lines[k].y[i], &zero, &top);
        }
    }
    if (!(high >= low) || !(top > 0))
        return; /* nothing to draw */
    scale_init(&x, low, high, 6);
    scale_init(&y, 0.0, top, 5);
    if (a->x_names != NULL) {
        x.low = -0.5;
        x.high = (double)a->x_count - 0.5;
    } else {
        x.low = low; /* data from edge to edge, round numbers between */
        x.high = high > low ? high : low + 1.0;
    }
    fputs("<figure><figcaption>", out);
    html_text(out, a->title);
    fputs("</figcaption>\n", out);
    if (n > 1)
        html_legend(out, names, n);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", LINES_W, LINES_H);
    html_text(out, a->title);
    fputs("\">\n", out);
    draw_y_axis(out, a, &y);
    if (a->x_names == NULL)
        x.step = x.step > 0 ? x.step : 1.0;
    {
        struct scale ticks = x;

        ticks.low = ceil(x.low / x.step - 1e-9) * x.step;
        ticks.high = floor(x.high / x.step + 1e-9) * x.step;
        /* place() of the tick scale must agree with that of the data */
        ticks.at = place(&x, ticks.low);
        ticks.span = place(&x, ticks.high) - ticks.at;
        draw_x_axis(out, a, a->x_names != NULL || !(ticks.high > ticks.low) ? &x : &ticks);
    }
    for (size_t k = 0; k < n; k++)
        draw_line(out, &lines[k], k, &x, &y);
    fputs("</svg></figure>\n", out);
}

/* ---- bars ---- */

static void
draw_bar(FILE *out, const struct html_bar *b, const char *const *names, size_t parts, double y,
         const struct scale *x)
{
    double from = 0.0;
    char buf[32];

    fprintf(out, "<text class=\"ink\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", BAR_LEFT - 8,
            y + BAR_H - 7.0);
    html_text(out, b->name);
    fputs("</text>\n", out);
    for (size_t i = 0; i < parts; i++) {
        double left = place(x, from), width;

        if (!isfinite(b->parts[i]) || b->parts[i] <= 0)
            continue;
        from += b->parts[i];
        width = place(x, from) - left;
        fprintf(out,
                "<rect class=\"p c%zu\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>",
                i % HTML_COLOURS, left, y, fmax(width - (width > 3 ? 1.0 : 0.0), 0.3), BAR_H);
        html_text(out, names[i]);
        fprintf(out, ": %s</title></rect>\n", number_text(b->parts[i], buf));
    }
    if (isfinite(b->total))
        fprintf(out, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", place(x, from) + 6.0,
                y + BAR_H - 7.0, number_text(b->total, buf));
}

void
html_bars(FILE *out, const char *title, const char *unit, const char *const *part_names,
          size_t parts, const struct html_bar *bars, size_t n)
{
    struct scale x = {.at = BAR_LEFT, .span = BARS_W - BAR_LEFT - BAR_RIGHT};
    double top = 0.0;
    int height = (int)n * (BAR_H + BAR_GAP) + 40;
    char buf[32];

    for (size_t k = 0; k < n; k++) {
        double sum = 0.0;

        for (size_t i = 0; i < parts; i++)
            sum += isfinite(bars[k].parts[i]) ? fmax(bars[k].parts[i], 0.0) : 0.0;
        top = fmax(top, sum);
    }
    if (!(top > 0))
        return;
    scale_init(&x, 0.0, top, 6);
    fputs("<figure><figcaption>", out);
    html_text(out, title);
    fputs("</figcaption>\n", out);
    if (parts > 1)
        html_legend(out, part_names, parts);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", BARS_W, height);
    html_text(out, title);
    fputs("\">\n", out);
    for (int i = 0; i <= steps_of(&x); i++) {
        double v = i * x.step;

        fprintf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                place(&x, v), place(&x, v), height - 38, place(&x, v), height - 22,
                number_text(v, buf));
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", BAR_LEFT + (int)x.span / 2,
            height - 5);
    html_text(out, unit);
    fputs("</text>\n", out);
    for (size_t k = 0; k < n; k++)
        draw_bar(out, &bars[k], part_names, parts, (double)k * (BAR_H + BAR_GAP), &x);
    fputs("</svg></figure>\n", out);
}

/* ---- zones ---- */

enum zone_kind {
    ZONE_LIVE,
    ZONE_FILLING,
    ZONE_OWN,
    ZONE_OF_LOG,
    ZONE_KINDS
};

/* A cell stands for the zones `from` to `to`: what it is drawn as, and how dark (0 .. SHADES; 0: not at all). */
static int
zone_cell(const char *map, size_t from, size_t to, enum zone_kind *kind)
{
    double live = 0.0;
    size_t open = 0, meta = 0, log = 0, n = to - from;

    for (size_t z = from; z < to; z++) {
        char c = map[z];

        open += c >= 'A' && c <= 'J';
        meta += c == 'm' || c == 'x';
        log += c == 'l';
        if (c >= '0' && c <= '9')
            live += 0.1 + 0.1 * (double)(c - '0');
        else if (c >= 'A' && c <= 'J')
            live += 0.1 + 0.1 * (double)(c - 'A');
    }
    *kind = open > 0       ? ZONE_FILLING
            : meta * 2 > n ? ZONE_OWN
            : log * 2 >= n ? ZONE_OF_LOG
                           : ZONE_LIVE;
    if (*kind == ZONE_OWN || *kind == ZONE_OF_LOG)
        return SHADES - 2;
    return (int)ch_max_u64((uint64_t)(live / (double)n * SHADES + 0.5), open > 0 ? SHADES / 2 : 0);
}

struct zone_picture {
    const char *const *maps;
    size_t n, zones, across;
    double width, height;
};

/* All cells of a kind and shade, equal neighbours joined, as one path. */
static void
draw_zones(FILE *out, const struct zone_picture *p, enum zone_kind kind, int shade)
{
    static const char *const classes[ZONE_KINDS] = {"z", "zo", "zm", "zl"};
    bool any = false;

    for (size_t k = 0; k < p->n; k++) {
        size_t have = strlen(p->maps[k]), run = 0;

        for (size_t i = 0; i <= p->across; i++) {
            size_t from = i * p->zones / p->across;
            size_t to = ch_min_u64((i + 1) * p->zones / p->across, have);
            enum zone_kind own = ZONE_KINDS;
            bool same = i < p->across && from < to &&
                        zone_cell(p->maps[k], from, to, &own) == shade && own == kind;

            run += same;
            if (same || run == 0)
                continue;
            if (!any)
                fprintf(out, "<path class=\"%s\" opacity=\"%.1f\" d=\"", classes[kind],
                        (double)shade / SHADES);
            any = true;
            fprintf(out, "M%.1f %.0fh%.1fv%.0fh-%.1fz", ZONES_LEFT + (double)(i - run) * p->width,
                    (double)k * p->height, (double)run * p->width, p->height - 1.0,
                    (double)run * p->width);
            run = 0;
        }
    }
    if (any)
        fputs("\"/>\n", out);
}

/* In place there are no zones but those of the arrays. */
static bool
has_zones(const char *const *maps, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (strspn(maps[k], ".mxl") != strlen(maps[k]))
            return true;
    return false;
}

void
html_zone_maps(FILE *out, const char *title, const char *const *maps, const double *at, size_t n)
{
    struct zone_picture p = {.maps = maps, .n = n, .height = n > 24 ? 8.0 : 14.0};
    double bottom = p.height * (double)n;
    char buf[32];

    for (size_t k = 0; k < n; k++)
        p.zones = ch_max_u64(p.zones, strlen(maps[k]));
    if (p.zones == 0 || !has_zones(maps, n))
        return;
    p.across = ch_min_u64(p.zones, ZONES_ACROSS);
    p.width = (double)(ZONES_W - ZONES_LEFT) / (double)p.across;
    fputs("<figure><figcaption>", out);
    html_text(out, title);
    fputs("</figcaption>\n<div class=\"legend\">", out);
    fputs("<span><i class=\"s\" style=\"background:var(--c0)\"></i>share of live bytes</span>"
          "<span><i class=\"s\" style=\"background:var(--c1)\"></i>being filled</span><span><i "
          "class=\"s\" style=\"background:var(--c8)\"></i>map and zone table</span><span><i "
          "class=\"s\" style=\"background:var(--c3)\"></i>log</span><span>blank: "
          "free</span></div>\n",
          out);
    fprintf(out, "<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", ZONES_W, bottom + 40.0);
    html_text(out, title);
    fputs("\">\n", out);
    for (size_t k = 0; k < n; k += n / 8 + 1)
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", ZONES_LEFT - 8,
                (double)k * p.height + p.height / 2 + 4.0, number_text(at[k], buf));
    for (int kind = 0; kind < ZONE_KINDS; kind++)
        for (int shade = 1; shade <= SHADES; shade++)
            draw_zones(out, &p, (enum zone_kind)kind, shade);
    fprintf(out,
            "<text x=\"%d\" y=\"%.1f\">zone 0</text><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">zone %zu</text><text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">"
            "zones by number; time downwards, in drive writes or seconds</text></svg></figure>\n",
            ZONES_LEFT, bottom + 18.0, ZONES_W, bottom + 18.0, p.zones - 1,
            ZONES_LEFT + (ZONES_W - ZONES_LEFT) / 2, bottom + 34.0);
}
