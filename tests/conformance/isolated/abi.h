/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The parts of the kind `abi`: each is called in a process of its own. */
#ifndef ABI_H
#define ABI_H

#include "life.h"

/* abi-file.c: exports, needs, flags of the file. */
void judge_file(struct isolated *isolated, const char *plugin);
/* abi-tables.c: the note against the tables, sizes, required entries, and whether all of it is constant. */
void judge_tables(struct isolated *isolated, const char *plugin);
void judge_constants(struct isolated *isolated, const char *plugin);
void judge_instances(struct isolated *isolated, const char *plugin);
/* abi-calls.c: capacities, and values that a plugin does not know. */
void judge_devices(struct isolated *isolated, const char *plugin);
void judge_capacities(struct isolated *isolated, const char *plugin);
void judge_unknown_values(struct isolated *isolated, const char *plugin);
/* abi-errors.c: hosts of other sizes, and what a failure says. */
void judge_hosts(struct isolated *isolated, const char *plugin);
void judge_errors(struct isolated *isolated, const char *plugin);
void judge_missing_errors(struct isolated *isolated, const char *plugin);

#endif
