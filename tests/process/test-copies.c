/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Several contexts and several copies of the library in one process: one linked, one opened from a copied
 * file, one in a name space of its own. All of them use the same plugin file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "malformed.h"
#include "process.h"

static struct malformed malformed;
static char copied_file[128];

/* The library and its helper beside it, as an application would bring them along. */
static void copy_library(void)
{
    const char *const names[][2] = {{"", "libattn-copy.so"}, {"attn-probe", "attn-probe"}};
    char from[4096];
    Dl_info info;
    malformed_create(&malformed);
    if (dladdr((void *)(uintptr_t)attn_version, &info) == 0 || realpath(info.dli_fname, from) == NULL)
        exit(99);
    for (int i = 0; i < 2; i++) {
        if (names[i][0][0] != '\0')
            strcpy(strrchr(from, '/') + 1, names[i][0]);
        malformed_copy(&malformed, from, names[i][1]);
    }
    chmod(malformed_path(&malformed, "attn-probe"), 0755);
    snprintf(copied_file, sizeof copied_file, "%s", malformed_path(&malformed, "libattn-copy.so"));
}

static bool find_functions(struct library *library, void *handle)
{
    bool found = true;
#define FIND(function)                                                                                       \
    do {                                                                                                     \
        void *symbol = dlsym(handle, #function);                                                             \
        memcpy(&library->function, &symbol, sizeof symbol);                                                  \
        found = found && symbol != NULL;                                                                     \
    } while (0);
    LIBRARY_FUNCTIONS(FIND)
#undef FIND
    return found;
}

/* ---------------------------------------------------------------- two contexts */

static void check_two_contexts(void)
{
    struct step one, four;
    bool opened = step_open(&one, &linked_library, "1");
    opened = step_open(&four, &linked_library, "4") && opened;
    check(opened, "two contexts with different variables: %s %s", one.err.message, four.err.message);
    bool right = true;
    for (int i = 0; i < 10; i++) {
        right = right && step_run(&one) == ATTN_OK && step_is_right(&one);
        right = right && step_run(&four) == ATTN_OK && step_is_right(&four);
    }
    check(right, "two contexts compute in turns");
    /* What belongs to one is nothing to the other. */
    struct attn_backend *backend = NULL;
    check(attn_backend_open(one.context, four.decision, NULL, &backend, &one.err) == ATTN_E_INVALID &&
              backend == NULL && one.err.reason == 0,
          "a decision of another context is refused: %s", one.err.message);
    one.tensors.kv = four.kv;
    check(step_run(&one) == ATTN_E_INVALID, "a cache of another backend is refused: %s", one.err.message);
    step_close(&four, 7);
    one.tensors.kv = one.kv;
    check(step_run(&one) == ATTN_OK && step_is_right(&one), "one goes on when the other is gone");
    step_close(&one, 3);
}

static void check_orders(void)
{
    unsigned wrong = 0;
    for (unsigned order = 0; order < 120; order++) {
        struct step step;
        wrong += !step_open(&step, &linked_library, "2") || step_run(&step) != ATTN_OK;
        step_close(&step, order);
    }
    check(wrong == 0, "five handles are destroyed in every order");
}

/* ---------------------------------------------------------------- two copies */

static int compute_with(void *arg)
{
    return step_works(arg, "4") && step_works(&linked_library, "4") ? 0 : 1;
}

/* Handles of both copies, inherited. */
static int use_after_fork(void *arg)
{
    struct step *const *steps = arg;
    for (int i = 0; i < 2; i++) {
        if (step_run(steps[i]) != ATTN_E_STATE || strstr(steps[i]->err.message, "fork") == NULL)
            return 1;
        step_close(steps[i], 11);
    }
    return compute_with((void *)(uintptr_t)steps[1]->library);
}

static _Atomic unsigned failures;

static void *compute_often(void *arg)
{
    for (int i = 0; i < 10; i++)
        failures += !step_works(arg, "2");
    return NULL;
}

static void check_pair(struct library *copy)
{
    struct step first, second, *steps[] = {&first, &second};
    bool opened = step_open(&first, &linked_library, "4");
    opened = step_open(&second, copy, "4") && opened;
    check(opened, "linked and %s: both open the plugin; %s %s", copy->name, first.err.message,
          second.err.message);
    bool right = true;
    for (int i = 0; i < 10; i++) {
        right = right && step_run(&first) == ATTN_OK && step_is_right(&first);
        right = right && step_run(&second) == ATTN_OK && step_is_right(&second);
    }
    check(right, "linked and %s: they compute in turns", copy->name);
    check(in_child(use_after_fork, steps, 20) == 0, "linked and %s: a child computes with both", copy->name);
    step_close(&first, 5);
    check(step_run(&second) == ATTN_OK && step_is_right(&second), "%s goes on when the linked one is done",
          copy->name);
    step_close(&second, 9);
    const struct library *const libraries[] = {&linked_library, copy};
    pthread_t threads[4];
    failures = 0;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, compute_often, (void *)(uintptr_t)libraries[i % 2]) != 0)
            exit(99);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check(failures == 0, "linked and %s: four threads compute at once", copy->name);
}

static void check_copy(void)
{
    struct library copy = {.name = "a copied file"};
    unsigned wrong = 0;
    for (int i = 0; i < 10; i++) {
        void *handle = dlopen(copied_file, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL || !find_functions(&copy, handle)) {
            check(false, "the copied library opens: %s",
                  handle == NULL ? dlerror() : "a function is missing");
            return;
        }
        if (i == 0) {
            check(copy.attn_context_create != attn_context_create, "the copied library is another one");
            check_pair(&copy);
        }
        wrong += !step_works(&copy, "2");
        dlclose(handle);
        /* Its fork handlers must be gone with it. */
        void *still = dlopen(copied_file, RTLD_NOW | RTLD_NOLOAD);
        wrong += still != NULL || in_child(compute_with, (void *)(uintptr_t)&linked_library, 20) != 0;
        if (still != NULL)
            dlclose(still);
    }
    check(wrong == 0, "the copied library is closed and opened again, with a fork between");
}

static void check_name_space(void)
{
    static const char name[] = "a copy in a name space of its own";
    struct library copy = {.name = name};
    if (is_sanitized()) {
        skip(name, "a sanitizer does not follow dlmopen");
        return;
    }
    void *handle = dlmopen(LM_ID_NEWLM, copied_file, RTLD_NOW | RTLD_LOCAL);
    if (!check(handle != NULL && find_functions(&copy, handle), "%s opens: %s", name,
               handle == NULL ? dlerror() : ""))
        return;
    bool right = true;
    for (int i = 0; i < 10; i++)
        right = right && step_works(&copy, "2") && step_works(&linked_library, "2");
    check(right, "%s computes in turns with the linked one", name);
}

int main(void)
{
    tap_begin();
    copy_library();
    check_two_contexts();
    check_orders();
    check_copy();
    check_name_space();
    malformed_remove(&malformed);
    return tap_end();
}
