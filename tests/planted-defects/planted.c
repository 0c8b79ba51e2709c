/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which defect a plugin has: compiled once for each, with DEFECT as its name. */
#include "defect.h"

const enum defect planted = DEFECT;
