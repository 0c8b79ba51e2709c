/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Steps that grow, come again as the next layer has them, and are small again. */
#ifndef STEPS_H
#define STEPS_H

#include "pair.h"

static const struct pair_step steps_self[] = {
    {2, {5, 3}, {0}},
    {2, {1, 1}, {6, 4}},
    {2, {1, 1}, {6, 4}},
    {2, {1, 1}, {7, 4}},
    {3, {1, 4, 7}, {8, 8, 7}},
    {5, {1, 1, 20, 1, 33}, {9, 9, 40, 30, 33}},
    {5, {1, 1, 20, 1, 33}, {9, 9, 40, 30, 33}},
    {1, {2}, {11}},
    {6, {1, 1, 1, 1, 1, 1}, {64, 63, 62, 61, 60, 1}},
    {2, {0, 1}, {3, 5}},
    {2, {0, 0}, {3, 5}},
    {2, {1, 1}, {6, 4}},
    {3, {1, 1, 0}, {9, 12, 5}},
    {2, {1, 1}, {2, 9}}, /* numbers as the arrays of the step before begin with, where there is no table */
};
enum { STEPS_SELF = sizeof steps_self / sizeof *steps_self };

#endif
