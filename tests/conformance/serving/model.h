/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A model of a few layers on builder, state and attn_layer_forward, with everything that its caches hold kept
 * on the host too: what a key is follows from its sequence and place alone, so that each step can be judged
 * by the oracle over the whole history, and each byte of a cache by a shadow of it.
 */
#ifndef MODEL_H
#define MODEL_H

#include "attn/layer.h"
#include "judge.h"

enum {
    CLASSES = 3,
    GROUPS = 2,
    CROSS = GROUPS, /* the number of the cross cache's blocks behind those of the groups */
    ENTRIES = 12,   /* sequences of a step */
    BLOCK = 8,
    MOST_LEN = 80,
    MOST_BLOCKS = MOST_LEN / BLOCK,
    MOST_ROWS = 96,
    MIXED_ROWS = 32, /* of a graph of any mix */
    PAGES = ENTRIES * MOST_BLOCKS + 1
};

/* ---------------------------------------------------------------- model.c */

struct class_def {
    const char *problem; /* without addressing, layout and maxima; NULL ends the list */
    uint32_t group;
    uint32_t new_dtype;   /* of k_new and v_new; 0 = as the library takes it */
    uint32_t cache_dtype; /* of a cache that the problem does not read */
};

struct model_def {
    const char *name;
    struct class_def classes[CLASSES];
    uint32_t chunked;
    uint32_t cross;                   /* 1: builder and state have a cross group */
    uint32_t windows[GROUPS];         /* the builder's; 0 = none */
    const struct attn_device *device; /* NULL: the CPU */
};

/* One cache, and what it is to hold. */
struct cache {
    bool made;
    struct attn_kv *kv;
    struct attn_kv_desc desc;   /* of the memory */
    struct attn_kv_desc shadow; /* of the copy */
    struct guarded *memory;
    struct guarded *scales[2];
    unsigned char *copy; /* memory, then scales */
    float host_scales[2][8];
};

struct sequence_state {
    uint64_t id;     /* what its tokens hold */
    uint64_t parent; /* ... but for the first `shared` */
    uint32_t shared;
    uint32_t len; /* tokens whose keys are in the caches */
    uint32_t encoder_len;
    int64_t blocks[GROUPS + 1][MOST_BLOCKS]; /* the cross cache's behind those of the groups */
    uint32_t counts[GROUPS + 1];
};

/* One sequence in a step. */
struct entry {
    struct sequence_state *sequence;
    uint32_t prompt;
    uint32_t q_len;
    uint32_t hit;     /* leading blocks that a prefix hit found */
    uint32_t trimmed; /* blocks that a decode's row shows; 0 = all */
};

/* How a step comes about. */
enum step_way {
    STEP_BUILT,    /* by adds */
    STEP_ADVANCED, /* from the step before, which has the same sequences */
    STEP_DEVICE    /* by attn_builder_set_device */
};

/* One step, and how its layers are called. */
struct step_def {
    enum step_way way;
    struct entry entries[ENTRIES];
    uint32_t count;
    uint32_t pad;    /* sequences of padding, with a graph */
    bool graph;      /* for a captured size */
    bool host_only;  /* ... that is launched as a whole */
    bool profile;    /* no blocks, no kv */
    bool null_table; /* blocks of kind ATTN_BLOCKS_NULL, as in pooling models */
    bool no_new;     /* k_new and v_new are not given */
    bool no_kv;      /* no cache is given */
    uint32_t row;    /* of the first sequence; UINT32_MAX = not given */
};

struct model {
    const struct model_def *def;
    struct attn_context *context;
    struct attn_backend *backend;
    char name[64];
    uint32_t flavour;
    uint32_t count;
    uint64_t seed;
    struct rng rng;
    struct attn_problem problems[CLASSES];
    struct attn_layer_class classes[CLASSES];
    struct attn_builder_group groups[GROUPS + 1];
    struct attn_builder *builder;
    struct attn_state *state;
    struct attn_layer *layers[CLASSES];
    struct cache caches[CLASSES];
    float slopes[CLASSES][16], sinks[CLASSES][16];
    struct arena arena; /* caches, and what layers keep */
    struct arena given; /* the arrays of a step on the device */
    uint8_t used[GROUPS + 1][PAGES];
    int64_t last_rows[GROUPS][ENTRIES][MOST_BLOCKS]; /* the last adds of builder rows */
    uint32_t last_counts[GROUPS][ENTRIES];
    struct attn_metadata *metadata; /* of the step at hand */
    const char *at;                 /* the call of builder or state that was made last */
    uint32_t class_at;              /* the class whose layer was called last */
    struct guarded *tokens;         /* that an advance reads and writes */
    struct guarded *positions;      /* that it writes */
    char why[640];
    struct attn_error refusal; /* the error that a call failed with */
};

/* The flavour that a backend's name ends with; 0 for others. */
uint32_t flavour_of(const char *backend);
/* Makes all of a model. False with model->why, if the library refuses something; then finish it all the same.
 */
bool model_init(struct model *model, const struct model_def *def, struct attn_context *context,
                struct attn_backend *backend, uint64_t seed);
/* The same in parts: classes and groups alone, then a state of them, and a layer. */
bool model_describe(struct model *model, const struct model_def *def, struct attn_context *context,
                    struct attn_backend *backend, uint64_t seed);
bool model_make_state(struct model *model);
bool model_make_layer(struct model *model, uint32_t c);
void model_finish(struct model *model);
/* Says which call failed, and with what; false. */
bool model_fail(struct model *model, const char *call, const struct attn_error *err);
/* Blocks for tokens up to `len` in every group, and of the cross cache for the encoder's. */
void sequence_grow(struct model *model, struct sequence_state *sequence, uint32_t len);
void sequence_free(struct model *model, struct sequence_state *sequence);
/* The number of a class' blocks in `blocks`. */
uint32_t class_group(const struct model *model, uint32_t c);

/* ---------------------------------------------------------------- contents.c */

/* The types of new keys and of cached ones. */
uint32_t new_dtype(const struct model *model, uint32_t c);
bool is_cross(const struct model *model, uint32_t c);
/* The new vector of a key (values: of a value), in its new type; at most 256 elements of 4 bytes. */
void new_vector(const struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t j,
                uint32_t head, bool values, unsigned char *to);
/* The same as a cache keeps it; returns its scale. */
double cached_vector(const struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t j,
                     uint32_t head, bool values, unsigned char *to);
/* Puts what tokens [first, end) of a sequence are to be into the shadow. */
void shadow_write(struct model *model, uint32_t c, const struct sequence_state *sequence, uint32_t first,
                  uint32_t end);
/* True if every byte of the cache is what the shadow says. */
bool shadow_check(struct model *model, uint32_t c);

/* ---------------------------------------------------------------- forward.c */

/* Counts allocations, or NULL; then no call of a layer may make one. */
extern uint64_t (*model_allocations)(void);
/* Metadata of a step. */
int32_t model_build(struct model *model, const struct step_def *step, struct attn_error *err);
/* ... and the state begins it. */
int32_t model_begin(struct model *model, const struct step_def *step, struct attn_error *err);
/* A tensor whose columns may be cut in two, as those of latent keys. */
struct pair {
    struct attn_tensor *whole, *rest;
    uint32_t cut, columns, element;
};
/* The tensors of one layer in the step. */
struct call {
    struct arena arena;
    struct pair q, k;
    struct attn_layer_tensors tensors;
    struct guarded *out, *lse;
    int64_t *starts; /* of masks; NULL without */
};
void call_init(struct call *call, struct model *model, uint32_t c, const struct step_def *step);
void call_finish(struct call *call);
/* Puts the queries and new keys of a step into tensors that were made for as many rows. */
void call_fill(const struct call *call, const struct model *model, uint32_t c, const struct step_def *step);
/* The cache that a layer is called with. */
struct attn_kv *call_cache_of(const struct model *model, uint32_t c, const struct step_def *step);
/* What a layer has written is right, and nothing else has changed. */
bool call_judge(struct model *model, uint32_t c, const struct step_def *step, const struct call *call);
/* Rows of a layer in the step, and those before sequence `n`. */
uint32_t rows_before(const struct model *model, uint32_t c, const struct step_def *step, uint32_t n);
/* All layers of a step, judged. False with model->why. The sequences grow. */
bool model_step(struct model *model, const struct step_def *step);

/* ---------------------------------------------------------------- compare.c */

/* True if a layer's output is what the oracle says of sequences [first, end). `cached`: keys as caches keep
 * them. */
bool compare(struct model *model, uint32_t c, const struct step_def *step, const struct call *call,
             uint32_t first, uint32_t end, bool cached);
/* True if nothing else was written to. Outputs are patterns again. */
bool compare_outside(struct model *model, uint32_t c, const struct step_def *step, const struct call *call);

#endif
