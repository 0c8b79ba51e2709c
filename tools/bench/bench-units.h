/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Times, rates and shares as people read them: three digits and a unit that fits. */
#ifndef BENCH_UNITS_H
#define BENCH_UNITS_H

enum { UNIT_TEXT = 32 };

/* A unit and how many of the base unit it is. */
struct unit {
    const char *name;
    double size;
};

/* The unit in which a value is from 1 to 1000: of microseconds, GB/s and TFLOP/s. */
struct unit unit_of_time(double us);
struct unit unit_of_bandwidth(double gbps);
struct unit unit_of_compute(double tflops);

/* "14.3 ms"; "-" for NAN. */
const char *unit_text(char text[UNIT_TEXT], double value, struct unit unit);
/* "13.9-15.0 ms". */
const char *unit_range(char text[UNIT_TEXT], double least, double most, struct unit unit);
/* "6.80 of 13.6 GB/s", or the one of the two that is known. */
const char *unit_pair(char text[UNIT_TEXT], double value, double ceiling, struct unit (*unit_of)(double));
/* "52 %". */
const char *share_text(char text[UNIT_TEXT], double share);

#endif
