/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Makes a plugin without side effects of the no-op plugin: it prints to standard output when it is loaded. */
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void make_noise(void)
{
    static const char raw[] = "raw noise\n";

    printf("noise through stdio\n");
    fflush(stdout);
    if (write(STDOUT_FILENO, raw, sizeof raw - 1) < 0)
        return;
}
