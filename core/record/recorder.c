/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Which calls of a context are recorded, and under which names. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "record/recorder.h"

/* Of the process, so that contexts do not write over each other's files. */
static _Atomic uint64_t file_number;

int32_t attn__recorder_create(const struct attn__env *env, struct attn__recorder **out,
                              struct attn_error *err)
{
    const char *value = attn__env_get(env, ATTN__VAR_ATTN_RECORD);
    struct attn__record_option option;
    char problem[128];

    *out = NULL;
    if (value[0] == '\0' || !attn__record_parse(value, &option, problem, sizeof problem))
        return ATTN_OK; /* a bad value was dropped when the environment was read */
    struct attn__recorder *recorder = calloc(1, sizeof *recorder);
    if (recorder != NULL)
        recorder->directory = strndup(value, option.directory);
    if (recorder == NULL || recorder->directory == NULL) {
        free(recorder);
        return attn__fail(err, ATTN_E_MEMORY, 0, "ATTN_RECORD", "no memory for a recorder");
    }
    recorder->option = option;
    pthread_mutex_init(&recorder->lock, NULL);
    *out = recorder;
    return ATTN_OK;
}

void attn__recorder_destroy(struct attn__recorder *recorder)
{
    if (recorder == NULL)
        return;
    pthread_mutex_destroy(&recorder->lock);
    free(recorder->directory);
    free(recorder);
}

/* The directory is made if only it is missing. */
static int32_t make_path(const struct attn__recorder *recorder, char *path, size_t size,
                         struct attn_error *err)
{
    const uint64_t number = atomic_fetch_add_explicit(&file_number, 1, memory_order_relaxed);
    struct timespec now;

    if (mkdir(recorder->directory, 0700) != 0 && errno != EEXIST)
        return attn__fail(err, ATTN_E_IO, 0, "ATTN_RECORD", "%s: %s", recorder->directory, strerror(errno));
    clock_gettime(CLOCK_REALTIME, &now);
    const int length = snprintf(path, size, "%s/attn-%lld-%ld-%06llu.record", recorder->directory,
                                (long long)now.tv_sec, (long)getpid(), (unsigned long long)number);
    return length > 0 && (size_t)length < size ? ATTN_OK
                                               : attn__fail(err, ATTN_E_IO, 0, "ATTN_RECORD", "%s: %s",
                                                            recorder->directory, strerror(ENAMETOOLONG));
}

/* Under the recorder's lock. */
static int32_t record(struct attn__recorder *recorder, const struct attn__run *run, uint64_t number,
                      struct attn_error *err)
{
    struct attn__call *call = calloc(1, sizeof *call);
    struct attn__taken taken = {.run = run,
                                .call = call,
                                .left = recorder->option.bytes - recorder->bytes,
                                .hash = recorder->option.hash,
                                .err = err};
    char path[PATH_MAX];
    uint64_t bytes;

    if (call == NULL)
        return attn__fail(err, ATTN_E_MEMORY, 0, "ATTN_RECORD", "no memory for a record");
    call->call = number;
    int32_t status = attn__taken_fill(&taken);
    if (status == ATTN_OK)
        status = make_path(recorder, path, sizeof path, err);
    if (status == ATTN_OK)
        status = attn__record_write(call, path, recorder->option.bytes - recorder->bytes, &bytes, err);
    attn__taken_finish(&taken);
    free(call);
    if (status != ATTN_OK)
        return status;
    recorder->bytes += bytes;
    attn__log_line(&run->plan->backend->context->log, ATTN_LOG_INFO, "record", "call %llu: %s, %llu bytes",
                   (unsigned long long)number, path, (unsigned long long)bytes);
    return ATTN_OK;
}

void attn__record_run(const struct attn__run *run)
{
    struct attn_context *context = run->plan->backend->context;
    struct attn__recorder *recorder = context->recorder;
    const struct attn__record_option *option = &recorder->option;
    const uint64_t number = atomic_fetch_add_explicit(&recorder->calls, 1, memory_order_relaxed) + 1;
    struct attn_error err;

    if (number <= option->skip || number - option->skip > option->calls)
        return;
    ATTN_INIT(&err);
    pthread_mutex_lock(&recorder->lock);
    if (record(recorder, run, number, &err) != ATTN_OK)
        attn__log_once(&context->log, ATTN_LOG_WARN, "record", "a call is not recorded: %s", err.message);
    pthread_mutex_unlock(&recorder->lock);
    if (number - option->skip == option->calls)
        attn__log_line(&context->log, ATTN_LOG_INFO, "record",
                       "%llu calls were looked at, as calls= of ATTN_RECORD says; no more are recorded",
                       (unsigned long long)option->calls);
}
