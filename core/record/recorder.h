/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The recorder of a context: ATTN_RECORD, its bounds, and calls on their way into files. */
#ifndef ATTN_RECORDER_H
#define ATTN_RECORDER_H

#include "core.h"
#include "record/record.h"

/* ---------------------------------------------------------------- option.c */

/* DIRECTORY[,calls=N][,skip=N][,bytes=N][,tensors=full|hash] */
struct attn__record_option {
    size_t directory; /* bytes of the value that are the directory */
    uint64_t calls;
    uint64_t skip;
    uint64_t bytes;
    bool hash; /* contents of tensors stay out */
};

/* False if the value is not accepted; `problem` then says why. */
bool attn__record_parse(const char *value, struct attn__record_option *out, char *problem, size_t size);

/* ---------------------------------------------------------------- recorder.c */

struct attn__recorder {
    char *directory;
    struct attn__record_option option;
    _Atomic uint64_t calls; /* that came by */
    pthread_mutex_t lock;   /* one call at a time is recorded; of `bytes` */
    uint64_t bytes;         /* of all files */
};

/* What a run was called with, in this library's size, and what came of it. */
struct attn__run {
    const struct attn_plan *plan;
    const struct attn_batch *batch;
    const struct attn_tensors *tensors;
    const struct attn_kv_desc *desc; /* of the cache, or NULL */
    void *stream;
    int32_t status;
    const char *message; /* of the plugin */
};

/* *out stays NULL if ATTN_RECORD is not given. */
int32_t attn__recorder_create(const struct attn__env *env, struct attn__recorder **out,
                              struct attn_error *err);
void attn__recorder_destroy(struct attn__recorder *recorder);
/* Writes a call that was made into a file, or logs why there is none. */
void attn__record_run(const struct attn__run *run);

/* ---------------------------------------------------------------- take.c: the memory of a call */

/* A call on its way into a record; its copies last until attn__taken_finish. */
struct attn__taken {
    const struct attn__run *run;
    struct attn__call *call;
    uint64_t left; /* bytes that the record may still take */
    bool hash;     /* contents of tensors stay out */
    struct attn_error *err;
    void **owned;
    uint32_t owned_count;
};

/* Fills taken->call from the run. ATTN_OK, or why it cannot be recorded. */
int32_t attn__taken_fill(struct attn__taken *taken);
void attn__taken_finish(struct attn__taken *taken);

/* Zeroed memory that counts against what is left; NULL with taken->err filled. */
void *attn__taken_room(struct attn__taken *taken, const char *name, uint64_t size);
/*
 * `size` bytes from `offset` behind a buffer on, where the host can read them; NULL with taken->err filled.
 * Memory of the host is not copied.
 */
const unsigned char *attn__taken_view(struct attn__taken *taken, const struct attn_buffer *buffer,
                                      int64_t offset, uint64_t size);
/* Gives a view back. */
void attn__taken_drop(struct attn__taken *taken, const unsigned char *view);
/* A part that the host has made, of `count` members. */
bool attn__taken_array(struct attn__taken *taken, uint32_t kind, const void *from, uint64_t size,
                       uint64_t count);

/* ---------------------------------------------------------------- take-batch.c */

/*
 * The arrays of the batch. *out_pages are the pages of the record, -1 = none in the cache; NULL: pages keep
 * their numbers.
 */
int32_t attn__taken_batch(struct attn__taken *taken, struct attn__reach *reach, int64_t **out_pages);

/* ---------------------------------------------------------------- take-mask.c, take-fields.c */

/* The mask, by lengths that are in the record. */
int32_t attn__taken_mask(struct attn__taken *taken);
/* All fields but those of the cache and the mask. */
int32_t attn__taken_fields(struct attn__taken *taken);

/* ---------------------------------------------------------------- file.c */

/* Says that something has more bytes than the bounds leave. */
int32_t attn__record_too_large(const char *name, uint64_t bytes, uint64_t left, struct attn_error *err);
/*
 * Writes the call under its name, whole or not at all, if it has at most `most` bytes. *out_bytes is how many
 * it has.
 */
int32_t attn__record_write(const struct attn__call *call, const char *path, uint64_t most,
                           uint64_t *out_bytes, struct attn_error *err);

#endif
