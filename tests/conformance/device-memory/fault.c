/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which fault a plugin has: compiled once for each, with FAULT as its name. */
#include "device-memory.h"

#ifndef FAULT
#define FAULT FAULT_NONE
#endif

const enum device_memory_fault device_memory_fault = FAULT;
