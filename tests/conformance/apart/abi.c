/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The binary interface of a plugin: its file, its tables, and calls at the edge of what is legal. */
#include "abi.h"

void check_abi(const struct run_options *options)
{
    apart_run(options, "file", judge_file);
    apart_run(options, "tables", judge_tables);
    apart_run(options, "constant tables", judge_constants);
    apart_run(options, "instances", judge_instances);
    apart_run(options, "host table", judge_hosts);
    apart_run(options, "devices", judge_devices);
    apart_run(options, "capacities of a query", judge_capacities);
    apart_run(options, "unknown values", judge_unknown_values);
    apart_run(options, "words of errors", judge_errors);
    apart_run(options, "without err", judge_missing_errors);
}
