/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The binary interface of a plugin: its file, its tables, and calls at the edge of what is legal. */
#include "abi.h"

void check_abi(const struct run_options *options)
{
    isolated_run(options, "file", judge_file);
    isolated_run(options, "tables", judge_tables);
    isolated_run(options, "constant tables", judge_constants);
    isolated_run(options, "instances", judge_instances);
    isolated_run(options, "host table", judge_hosts);
    isolated_run(options, "devices", judge_devices);
    isolated_run(options, "capacities of a query", judge_capacities);
    isolated_run(options, "unknown values", judge_unknown_values);
    isolated_run(options, "words of errors", judge_errors);
    isolated_run(options, "without err", judge_missing_errors);
}
