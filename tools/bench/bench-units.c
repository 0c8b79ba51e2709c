/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Times, rates and shares as people read them: three digits and a unit that fits. */
#include "bench-units.h"

#include <math.h>
#include <stdio.h>

/* The largest unit that leaves three digits at least 1; the list begins with the smallest one. */
static struct unit unit_choose(const struct unit *units, unsigned count, double value)
{
    unsigned i = 0;

    while (i + 1 < count && value >= 0.9995 * units[i + 1].size)
        i++;
    return units[i];
}

struct unit unit_of_time(double us)
{
    static const struct unit units[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};

    return unit_choose(units, sizeof units / sizeof *units, us);
}

struct unit unit_of_bandwidth(double gbps)
{
    static const struct unit units[] = {{"MB/s", 1e-3}, {"GB/s", 1}, {"TB/s", 1e3}};

    return unit_choose(units, sizeof units / sizeof *units, gbps);
}

struct unit unit_of_compute(double tflops)
{
    static const struct unit units[] = {{"MFLOP/s", 1e-6}, {"GFLOP/s", 1e-3}, {"TFLOP/s", 1}};

    return unit_choose(units, sizeof units / sizeof *units, tflops);
}

/* Three digits, without an exponent. */
static void print_digits(char text[UNIT_TEXT], double value)
{
    snprintf(text, UNIT_TEXT, "%.*f", value <= 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
}

const char *unit_text(char text[UNIT_TEXT], double value, struct unit unit)
{
    char digits[UNIT_TEXT];

    if (isnan(value))
        return "-";
    print_digits(digits, value / unit.size);
    snprintf(text, UNIT_TEXT, "%.20s %s", digits, unit.name);
    return text;
}

const char *unit_range(char text[UNIT_TEXT], double least, double most, struct unit unit)
{
    char low[UNIT_TEXT], high[UNIT_TEXT];

    if (isnan(least) || isnan(most))
        return "-";
    print_digits(low, least / unit.size);
    print_digits(high, most / unit.size);
    snprintf(text, UNIT_TEXT, "%.10s-%.10s %s", low, high, unit.name);
    return text;
}

const char *unit_pair(char text[UNIT_TEXT], double value, double ceiling, struct unit (*unit_of)(double))
{
    const struct unit unit = unit_of(isnan(ceiling) ? value : ceiling);
    char low[UNIT_TEXT], high[UNIT_TEXT];

    if (isnan(value) || isnan(ceiling))
        return unit_text(text, isnan(value) ? ceiling : value, unit);
    print_digits(low, value / unit.size);
    print_digits(high, ceiling / unit.size);
    snprintf(text, UNIT_TEXT, "%.9s of %.9s %s", low, high, unit.name);
    return text;
}

const char *share_text(char text[UNIT_TEXT], double share)
{
    if (isnan(share))
        return "-";
    snprintf(text, UNIT_TEXT, share < 0.0995 ? "%.1f %%" : "%.0f %%", 100 * share);
    return text;
}
