/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * Records: one call of attn_plan_run in one file, with all that a replay needs.
 *
 * A file is little-endian: a head, a table of parts, the fields as lines of text, and the bytes of the parts,
 * each at a multiple of 64. The head's hash covers head, table and fields; each part has a hash of its own.
 * Bytes of a part are packed; how they lay in the program's memory is said by strides and alignment, so that
 * a replay takes the same way through the kernels. Of a cache only the pages that the batch names are there,
 * renumbered in the order in which they are named. docs/operator.md says what that is for.
 */
#ifndef ATTN_RECORD_H
#define ATTN_RECORD_H

#include <stdbool.h>

#include "attn/attn.h"

#define ATTN__RECORD_MAGIC   "ATTNREC\n"
#define ATTN__RECORD_VERSION 1

/* Most memory of a part whose bytes are not in the file, which bounds the others. */
#define ATTN__RECORD_HASHED (UINT64_C(1) << 36)

enum {
    ATTN__RECORD_ALIGN = 64,  /* of the bytes of a part; alignment of addresses is known up to it */
    ATTN__RECORD_SPARSE = 64, /* memory that a part may take, in multiples of its bytes */
    ATTN__RECORD_TEXT = 16384 /* most bytes of the fields */
};

/* What of a part is in a file. */
enum attn__part_form { ATTN__PART_ABSENT = 0, ATTN__PART_BYTES = 1, ATTN__PART_HASH = 2 };

enum attn__part_kind {
#define ATTN_RECORD_PART(name, tensor) ATTN__PART_##name,
#include "record/part.def"
    ATTN__PARTS
};

/* An array of a call: [count0, count1, count2] vectors of `row` bytes. */
struct attn__part {
    uint32_t form;  /* enum attn__part_form */
    uint32_t place; /* of a scale: enum attn_scale_kind; else 0 */
    uint32_t align; /* its address, modulo ATTN__RECORD_ALIGN */
    uint64_t count[3];
    uint64_t row;
    int64_t stride[3]; /* bytes, as in the program's memory */
    uint64_t hash;     /* of its packed bytes */
    const unsigned char *bytes;
};

/* A call: fields as in field.def, and its arrays. */
struct attn__call {
#define ATTN_RECORD_TEXT(name, size)     char name[size];
#define ATTN_RECORD_NUMBER(name, lo, hi) uint64_t name;
#include "record/field.def"
    struct attn__part parts[ATTN__PARTS];
};

/* On disk. */
struct attn__record_head {
    char magic[8];
    uint32_t version;
    uint32_t parts;
    uint64_t file_bytes;
    uint64_t text_bytes;
    uint64_t hash; /* of the members above, the table and the fields */
};

struct attn__record_entry {
    uint32_t kind;
    uint32_t form;
    uint32_t place;
    uint32_t align;
    uint64_t offset;
    uint64_t count[3];
    uint64_t row;
    int64_t stride[3];
    uint64_t hash;
};

/* ---------------------------------------------------------------- part.c: parts and what they have to be */

/* "q_offsets", and whether it is left out where contents are not wanted. */
const char *attn__part_name(uint32_t kind);
bool attn__part_is_tensor(uint32_t kind);
/* Packed bytes; false if they do not fit 63 bits. */
bool attn__part_bytes(const struct attn__part *part, uint64_t *out);
/* Strides without gaps. */
void attn__part_pack(struct attn__part *part);
/*
 * Bytes of memory from its first to its last one, and how far the first vector lies behind the first byte,
 * where strides are negative. False if that is more than ATTN__RECORD_SPARSE times its bytes.
 */
bool attn__part_extent(const struct attn__part *part, uint64_t *out_bytes, uint64_t *out_first);

/* What follows from the lengths of a batch. */
struct attn__reach {
    uint32_t rows;       /* query tokens that sequences have */
    uint64_t new_rows;   /* of k_new and v_new */
    uint64_t entries;    /* of csr_indices */
    uint32_t pages;      /* most pages of a sequence */
    uint32_t last_token; /* dense: tokens of a page, or of the run, that are read */
};

/*
 * Checks the contents of arrays in host memory, and follows them. `batch` has the scalars, and `pages` if it
 * is known.
 */
int32_t attn__reach_find(const struct attn_problem *problem, const struct attn_batch *batch,
                         const struct attn_batch_host *host, struct attn__reach *out, struct attn_error *err);
/* Keys of a sequence that are here. */
uint32_t attn__reach_keys(const struct attn_batch_host *host, uint32_t sequence);

/* The scalars and host arrays of a record. */
void attn__call_batch(const struct attn__call *call, struct attn_batch *batch, struct attn_batch_host *host);

/* Rows of a mask: what a sequence has of it. */
struct attn__mask_rows {
    uint64_t heads, rows, row; /* `row` in bytes */
    uint64_t extent;           /* from the first byte to the last one */
};

/* False if strides leave too much between rows. */
bool attn__mask_rows(const struct attn_problem *problem, const struct attn__call *call,
                     const struct attn_batch_host *host, uint32_t sequence, struct attn__mask_rows *out);

/*
 * Sets count and row of every part that the problem and the batch demand, in `out`; others stay absent, and
 * so do those that are optional: `has` says which of these there are. Of scales the counts are the largest.
 */
void attn__parts_expect(const struct attn_problem *problem, const struct attn__call *call,
                        const struct attn__reach *reach, struct attn__part *out);

/* ---------------------------------------------------------------- field.c: fields as text */

/* The lines of a call; returns their number of bytes. `text` has ATTN__RECORD_TEXT of them. */
size_t attn__fields_write(const struct attn__call *call, char *text);
/* Reads them; the message names the field, its value and what is accepted. */
int32_t attn__fields_read(const char *text, size_t size, struct attn__call *call, struct attn_error *err);

/* ---------------------------------------------------------------- read.c, read-check.c: for tools, not in
 * libattn.so */

/*
 * Reads a record; its parts point into `data`, which is aligned to 8 bytes. Every size is judged before it is
 * used. ATTN_E_INVALID names the part or the field, its value and what is accepted; ATTN_E_UNSUPPORTED is
 * another version.
 */
int32_t attn__record_read(const void *data, size_t size, struct attn__call *call,
                          struct attn_problem *problem, struct attn_error *err);

/* read-check.c: the part of it that follows from the problem; sizes are those of the file. */
int32_t attn__call_check(const struct attn__call *call, const struct attn_problem *problem,
                         struct attn_error *err);
/* "the record's FIELD is VALUE; accepted: ACCEPTED NUMBER" */
int32_t attn__record_refuse(struct attn_error *err, const char *field, uint64_t value, const char *accepted,
                            uint64_t number);

#endif
