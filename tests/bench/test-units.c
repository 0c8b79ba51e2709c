/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Times, rates and shares as attn-bench writes them: three digits, and the unit that leaves no more. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench-units.h"

static unsigned count, failed;

static void expect(const char *got, const char *wanted)
{
    const int good = strcmp(got, wanted) == 0;

    failed += good == 0;
    printf("%sok %u - %s\n", good != 0 ? "" : "not ", ++count, wanted);
    if (good == 0)
        printf("# it is \"%s\"\n", got);
}

static void expect_time(double us, const char *wanted)
{
    char text[UNIT_TEXT];

    expect(unit_text(text, us, unit_of_time(us)), wanted);
}

int main(void)
{
    const double nothing = (double)NAN;
    char text[UNIT_TEXT];

    expect_time(0, "0 ns");
    expect_time(0.0203, "20.3 ns");
    expect_time(0.9994, "999 ns");
    expect_time(0.9996, "1.00 us");
    expect_time(9.994, "9.99 us");
    expect_time(9.996, "10.0 us");
    expect_time(99.96, "100 us");
    expect_time(812.4, "812 us");
    expect_time(999.6, "1.00 ms");
    expect_time(14300, "14.3 ms");
    expect_time(1.318e6, "1.32 s");
    expect_time(3.6e9, "3600 s");
    expect_time(nothing, "-");
    expect(unit_text(text, 0.0386, unit_of_bandwidth(0.0386)), "38.6 MB/s");
    expect(unit_text(text, 1.7, unit_of_bandwidth(1.7)), "1.70 GB/s");
    expect(unit_text(text, 4030, unit_of_bandwidth(4030)), "4.03 TB/s");
    expect(unit_text(text, 0.0000213, unit_of_compute(0.0000213)), "21.3 MFLOP/s");
    expect(unit_text(text, 3.2, unit_of_compute(3.2)), "3.20 TFLOP/s");
    expect(unit_text(text, 369, unit_of_compute(369)), "369 TFLOP/s");
    expect(unit_range(text, 7100, 15567, unit_of_time(9871)), "7.10-15.6 ms");
    expect(unit_range(text, 600, 4300, unit_of_time(812)), "600-4300 us");
    expect(unit_range(text, nothing, 1, unit_of_time(1)), "-");
    expect(unit_pair(text, 6.798, 13.63, unit_of_bandwidth), "6.80 of 13.6 GB/s");
    expect(unit_pair(text, 0.0272, 0.0736, unit_of_compute), "27.2 of 73.6 GFLOP/s");
    expect(unit_pair(text, 41.5, nothing, unit_of_bandwidth), "41.5 GB/s");
    expect(unit_pair(text, nothing, nothing, unit_of_bandwidth), "-");
    expect(share_text(text, 0.5237), "52 %");
    expect(share_text(text, 0.0994), "9.9 %");
    expect(share_text(text, 0.0996), "10 %");
    expect(share_text(text, 1.25), "125 %");
    expect(share_text(text, nothing), "-");
    printf("1..%u\n", count);
    return failed != 0;
}
