/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A step is a case laid out in guarded memory: order of sequences, page numbers, strides. */
#ifndef STEP_H
#define STEP_H

#include "case.h"

/* ---------------------------------------------------------------- buffers.c: memory between guard pages */

enum { ARENA_BUFFERS = 32 };

struct guarded {
    const char *name;
    unsigned char *map; /* first guard page */
    size_t map_size;
    unsigned char *data;
    size_t size;
    bool constant; /* protected: nothing may change it */
    bool spoiled;  /* its twin in device memory was written to where it must not be */
    struct twin *twins;
    void (*drop_twins)(struct guarded *buffer);
};

struct arena {
    struct guarded buffers[ARENA_BUFFERS];
    uint32_t count;
    bool before; /* data begin at a guard page instead of ending at one */
};

void arena_init(struct arena *arena, bool before);
/* Ends the program if there is no memory. All bytes are `fill`; the rest of the mapping is a red zone. */
struct guarded *arena_add(struct arena *arena, const char *name, size_t size, size_t alignment, uint8_t fill);
/* Makes a buffer readable only, so that a write into an input is caught where it happens. */
void guarded_protect(struct guarded *buffer);
/* The other way round. What was forbidden is not any more. */
void guarded_unprotect(struct guarded *buffer);
/* Makes the whole pages between two offsets of a buffer's data neither readable nor writable. */
void guarded_forbid(const struct guarded *buffer, size_t from, size_t to);
/* Bytes from row to row, so that a page between any two of them can be forbidden. */
size_t guarded_gap(size_t row);
/* False if a red zone of any buffer was written to; *out_name is the buffer. */
bool arena_check(const struct arena *arena, const char **out_name);
void arena_finish(struct arena *arena);
/* The buffer whose mapping holds the address, or NULL. */
struct guarded *arena_buffer(const void *address);
/* From now on guarded_forbid does nothing: memory of devices has no such pages. */
void arena_forbid_nothing(void);
/* Name of the buffer whose mapping holds the address, or NULL. For the signal handler. */
const char *arena_find(const void *address);

/* The bytes that an output holds before a run. */
void pattern_fill(const struct guarded *buffer);
/* Puts the pattern back over what was expected to be written. */
void pattern_restore(const struct guarded *buffer, const void *from, size_t size);
/* Offset of the first byte that is not the pattern, or -1. */
int64_t pattern_check(const struct guarded *buffer);

/* ---------------------------------------------------------------- layout.c, index.c, fill.c: a case in
 * memory */

/* Choices that must not change any result. */
struct layout {
    uint64_t seed;
    uint32_t order[MAX_SEQS]; /* sequences of the case */
    uint32_t count;
    uint32_t padding; /* sequences without tokens put between them */
    bool before;
    bool host;
    uint32_t alignment; /* demanded by the target */
    uint32_t stride_multiple;
};

enum { STEP_SEQS = MAX_SEQS + 4 };

struct step {
    const struct conform_case *the_case;
    struct layout layout;
    struct arena arena;
    int32_t source[STEP_SEQS]; /* sequence of the case, -1 = padding */
    uint32_t first_row[STEP_SEQS];
    uint32_t new_row[STEP_SEQS]; /* row of k_new and v_new of the first new key */
    uint32_t new_rows;
    uint32_t seqs;
    uint32_t *physical;          /* page of a logical page */
    uint32_t spare;              /* a page that nobody uses */
    struct attn_problem problem; /* with maxima */
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    bool use_handle;
    uint32_t numerics; /* enum attn_numerics of the target that ran last, 0 before */
    struct guarded *k_memory;
    struct guarded *v_memory;
    struct guarded *k_new; /* k_new and v_new, NULL without them */
    struct guarded *v_new;
    struct guarded *q_memory;
    struct guarded *rope_memory; /* NULL: queries lie in one tensor */
    struct guarded *out_memory;
    struct guarded *lse_memory;     /* NULL without lse */
    struct guarded *scales[SCALED]; /* NULL without values */
};

/* The plain layout of a case: its own order. */
void layout_init(struct layout *layout, const struct conform_case *the_case, uint64_t seed);
/* Lays out and fills everything; `attention` is 0 for a cache without tensors. */
void step_init(struct step *step, const struct conform_case *the_case, const struct layout *layout,
               bool attention);
void step_finish(struct step *step);
/* Size of a dimension in bytes: at least `least`, a multiple of what the target and the type ask for. */
int64_t stride_padded(uint64_t least, uint32_t element, const struct layout *layout, struct rng *rng);
/* A view [tokens, heads, dim] with random strides in a new buffer that ends with its last element. */
struct guarded *tensor_init(struct attn_tensor *tensor, struct arena *arena, const char *name,
                            const uint32_t shape[3], uint32_t element, const struct layout *layout,
                            struct rng *rng, uint8_t fill);
unsigned char *tensor_at(const struct attn_tensor *tensor, uint32_t token, uint32_t head);
/* Splits an address into data and byte offset at random. */
struct attn_buffer buffer_at(void *address, struct rng *rng);
void step_fill_keys(struct step *step);
void step_fill_queries(struct step *step);
/* scales.c: arrays without a number, those of the cache and those of the tensors. */
void step_place_cache_scales(struct step *step);
void step_place_scales(struct step *step);
/* A graph reads no scale of single tokens in host memory, for these change from step to step. */
void step_move_scales(struct step *step);
struct attn_scale *step_scale(struct step *step, uint32_t what);
unsigned char *step_scale_at(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head);
/* Nothing happens where there is no value to put. */
void step_put_scale(struct step *step, uint32_t what, int64_t outer, int64_t token, int64_t head,
                    double value);
/* mask.c */
void step_place_mask(struct step *step, struct rng *rng);
/* index.c: everything of the batch, and the pages and tokens of the cache. */
void step_place_batch(struct step *step, struct rng *rng);
/* Where key j of a sequence of the step lies. */
void step_place(const struct step *step, uint32_t index, uint32_t j, int64_t *out_page, int64_t *out_token);
unsigned char *key_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head);
unsigned char *value_at(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head);
/* A protected array of the batch. */
struct attn_buffer step_add_array(struct step *step, const char *name, const void *from, size_t count,
                                  uint32_t element, struct rng *rng);
/* ranks.c: this rank, and all keys of the sequences of a step. */
void step_place_ranks(struct step *step, struct rng *rng);

/* ---------------------------------------------------------------- elements.c: layouts in chunks */

/* x: elements of a key that lie together in layout paged-x. */
uint32_t paged_x_elements(uint32_t dtype);
/* Memory for a vector before it is placed, kept until `which` (0 or 1) is asked for again. */
unsigned char *vector_room(uint32_t which, uint32_t count);
/* Elements of a cache of either layout. */
unsigned char *key_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                           uint32_t d);
unsigned char *value_element(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
                             uint32_t d);
void put_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
             const unsigned char *vector);
void put_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head,
               const unsigned char *vector);
void get_key(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to);
void get_value(const struct attn_kv_desc *kv, int64_t page, int64_t token, uint32_t head, unsigned char *to);
void put_query(const struct step *step, uint32_t row, uint32_t head, const unsigned char *vector);
/* q, in one tensor or two. */
void step_place_queries(struct step *step, uint32_t rows, struct rng *rng);
/* Strides of a cache in chunks; returns the bytes of a page. */
uint64_t paged_x_strides(const struct step *step, struct rng *rng, bool values, int64_t *out_token,
                         int64_t *out_head);

#endif
