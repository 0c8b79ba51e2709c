/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the driver that stands in for CUDA's has seen: addresses of the host in kernels, what was not
 * released. */
#include "fake-watch.h"

#include "fake.h"
#include "tap.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

void fake_watch_begin(struct fake_watch *w)
{
    const char *path = getenv("ATTN_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL; /* stays for the whole run */
    void *symbol = library ? dlsym(library, "fake_get") : NULL;
    fake_get_fn get = NULL;
    memcpy(&get, &symbol, sizeof get);
    w->fake = get ? get() : NULL;
}

void fake_watch_end(const struct fake_watch *w)
{
    char leaks[200] = "";
    if (!w->fake || w->fake->calls() == 0)
        return;
    uint64_t launches = w->fake->calls_of("cuLaunchKernel");
    uint64_t graphs = w->fake->calls_of("cuGraphLaunch");
    uint32_t left = w->fake->leaks(leaks, sizeof leaks);
    const char *offence = w->fake->offence();
    tap_result(
        launches > 0 && left == 0 && !offence[0],
        "the driver saw %llu launches of kernels and %llu of graphs; nothing wrong, nothing left%s%s %s",
        (unsigned long long)launches, (unsigned long long)graphs, offence[0] ? ": " : "", offence, leaks);
}
