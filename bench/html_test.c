/* html_test.c - what is written is well formed, escaped, and drawn only where there is something to draw. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/html.h"
#include "zt/zt.h"

struct page {
    FILE *out;
    char *text;
    size_t bytes;
};

static void
page_open(struct zt *t, struct page *p)
{
    p->out = open_memstream(&p->text, &p->bytes);
    ZT_CHECK(t, p->out != NULL);
}

static void
page_close(struct page *p)
{
    fclose(p->out);
}

/* Goal: no byte of a text becomes markup. */
static void
test_escapes(struct zt *t)
{
    char text[64] = {0};
    struct page p;

    for (size_t i = 0; i + 1 < sizeof(text); i++)
        text[i] = (char)(1 + zt_below(t, 255));
    page_open(t, &p);
    html_text(p.out, text);
    html_text(p.out, NULL);
    html_text(p.out, "<a href=\"x\">&'");
    page_close(&p);
    ZT_CHECK(t, strpbrk(p.text, "<>\"'\n\t") == NULL);
    ZT_CHECK(t, strstr(p.text, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;") != NULL);
    free(p.text);
}

/* Goal: values that are no numbers are left out, whatever else a chart holds; all of its marks lie in its box. */
static void
test_lines(struct zt *t)
{
    double x[20], y[20];
    struct html_line line = {"a<b", x, y, 1 + (size_t)zt_below(t, 20)};
    struct html_axes axes = {.title = "t", .x = "x", .y = "y"};
    size_t good = 0;
    struct page p;

    for (size_t i = 0; i < line.n; i++) {
        x[i] = (double)zt_below(t, 1000000) / 7.0;
        y[i] = zt_below(t, 4) == 0 ? (double)NAN : 0.001 + (double)zt_below(t, 1000);
        good += isfinite(y[i]) != 0;
    }
    page_open(t, &p);
    html_lines(p.out, &axes, &line, 1);
    page_close(&p);
    ZT_CHECK(t, strstr(p.text, "nan") == NULL && strstr(p.text, "inf") == NULL);
    ZT_CHECK(t, (good > 0) == (strstr(p.text, "<svg") != NULL));
    for (const char *at = p.text; (at = strstr(at, "cx=\"")) != NULL; at++) {
        double cx = strtod(at + 4, NULL), cy = strtod(strstr(at, "cy=\"") + 4, NULL);

        ZT_CHECK(t, cx >= 0 && cx <= 480 && cy >= 0 && cy <= 260);
        good--;
    }
    ZT_CHECK(t, good == 0);
    free(p.text);
}

/* Goal: bars are as long as their parts; nothing is drawn of nothing. */
static void
test_bars(struct zt *t)
{
    static const char *const names[] = {"one", "two"};
    double parts[2][2] = {{1.0, 3.0}, {(double)NAN, 0.0}}, first, second;
    struct html_bar bars[2] = {{"a", parts[0], 4.0}, {"b", parts[1], (double)NAN}};
    const char *at;
    struct page p;

    page_open(t, &p);
    html_bars(p.out, "t", "u", names, 2, bars, 2);
    page_close(&p);
    at = strstr(p.text, "<rect");
    ZT_CHECK(t, at != NULL);
    first = strtod(strstr(at, " width=\"") + 8, NULL);
    at = strstr(at + 1, "<rect");
    ZT_CHECK(t, at != NULL && strstr(at + 1, "<rect") == NULL);
    second = strtod(strstr(at, " width=\"") + 8, NULL);
    ZT_CHECK(t, fabs((second + 1.0) / (first + 1.0) - 3.0) < 0.05);
    free(p.text);
    page_open(t, &p);
    html_bars(p.out, "t", "u", names, 2, bars + 1, 1);
    page_close(&p);
    ZT_CHECK(t, p.bytes == 0);
    free(p.text);
}

/* Goal: a map without zones of its own is not drawn; any letters at all make a picture without failing. */
static void
test_zones(struct zt *t)
{
    char map[600] = {0}, blank[] = "mm...x";
    const char *maps[3] = {map, map, map}, *none[1] = {blank};
    double at[3] = {0.0, 0.5, 1.0};
    struct page p;

    for (size_t i = 0; i < 1 + zt_below(t, sizeof(map) - 1); i++)
        map[i] = (char)(33 + zt_below(t, 90));
    map[0] = '5';
    page_open(t, &p);
    html_zone_maps(p.out, "t", maps, at, 3);
    page_close(&p);
    ZT_CHECK(t, strstr(p.text, "<path") != NULL);
    free(p.text);
    page_open(t, &p);
    html_zone_maps(p.out, "t", none, at, 1);
    page_close(&p);
    ZT_CHECK(t, p.bytes == 0);
    free(p.text);
}

int
main(int argc, char **argv)
{
    static const struct zt_case cases[] = {
        {"escapes", test_escapes, 50},
        {"lines", test_lines, 100},
        {"bars", test_bars, 1},
        {"zones", test_zones, 30},
    };

    return zt_main(argc, argv, "html", cases, CH_ARRAY_LEN(cases));
}
