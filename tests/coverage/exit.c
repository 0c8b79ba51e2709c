/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Linked into everything that tools/coverage builds, with --wrap=_exit: children that end without running
 * exit handlers write their counts too.
 */
#include <gcov.h>

_Noreturn void __wrap__exit(int status);
_Noreturn void __real__exit(int status);

_Noreturn void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}
