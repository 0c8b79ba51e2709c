/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of this plugin share: the tables of its parts, and the metadata that its builder makes. */
#ifndef OWN_H
#define OWN_H

#include <attn/plugin-util.h>
#include <stdarg.h>

#define OWN_DEVICE (ATTN_DEVICE_OTHER + 7)

extern const struct attn_plan_table own_plan;
extern const struct attn_kv_table own_kv;
extern const struct attn_memory_table own_memory;
extern const struct attn_builder_table own_builder;
extern const struct attn_state_table own_state;
extern const struct attn_layer_table own_layer;
int32_t own_query(struct attn_instance *instance, const struct attn_device *device,
                  const struct attn_problem *p, struct attn_query *out);
int32_t own_axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *count);

enum { OWN_GROUPS = 4 }; /* cache groups at most */

/* begin metadata */
/* One sequence of a step, with all that a kernel has to know: a batch of its own. */
struct own_record {
    int32_t starts[2]; /* 0, and its new tokens */
    int32_t len;       /* keys, those of the new tokens included */
    uint32_t first;    /* the number of its first new token in the step */
    uint32_t row;      /* of the block tables */
};

/* What is a cache group's own. */
struct own_group {
    uint32_t width;  /* cells of a row */
    int32_t *blocks; /* rows of the block table */
    int64_t *slots;  /* [tokens] */
};

struct attn_metadata_impl {
    uint64_t step; /* counts the builds of its builder; 0: of a capture */
    uint32_t graph;
    uint32_t count;
    uint32_t prompts;
    uint32_t prompt_tokens;
    uint32_t tokens;
    uint32_t groups;
    struct own_record *records;
    struct own_group group[OWN_GROUPS];
};
/* end metadata */

int32_t own_metadata_init(struct attn_metadata_impl *metadata, const struct attn_builder_group *groups,
                          uint32_t count, uint32_t seqs, uint32_t tokens, struct attn_error *err);
void own_metadata_finish(struct attn_metadata_impl *metadata);
/* Adds sequences without keys, whose token is stored nowhere, behind the others. */
void own_metadata_pad(struct attn_metadata_impl *metadata, uint32_t pad);
/* The builder's `get`. */
int32_t own_metadata_get(const struct attn_metadata_impl *metadata, uint32_t field, uint32_t index,
                         struct attn_view *out, struct attn_error *err);

static inline int32_t *own_row(const struct attn_metadata_impl *metadata, uint32_t group, uint32_t row)
{
    return metadata->group[group].blocks + (size_t)row * metadata->group[group].width;
}

/* Fills err with "field: text" and returns status. */
__attribute__((format(printf, 4, 5))) static inline int32_t
own_fail(struct attn_error *err, int32_t status, const char *field, const char *format, ...)
{
    char text[300];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return attn_util_fail(err, status, field, text);
}

/* The reason that the query gives for kv_source=new, which a prompt without blocks would be. */
static inline int32_t own_refuse_new(struct attn_error *err)
{
    own_fail(err, ATTN_E_UNSUPPORTED, "kv_source", "a sequence whose keys are in no cache is not served");
    if (err != NULL)
        err->reason = ATTN_REASON_KV_SOURCE;
    return ATTN_E_UNSUPPORTED;
}

#endif
