/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The backend of the tests, and its memory. */
#include "world.h"

static struct attn_context *context;
struct attn_backend *backend;

bool world_open(const char *name)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_problem problem;

    ATTN_INIT(&options);
    options.backend = name;
    must(attn_context_create(NULL, &context, &err));
    must(attn_problem_parse("heads=4 head_dim=16 q=f32 graph=always", &problem, &err));
    if (attn_select(context, &problem, 1, &options, &decision, &err) != ATTN_OK)
        return false;
    must(attn_backend_open(context, decision, NULL, &backend, &err));
    attn_decision_destroy(decision);
    return true;
}

struct attn_buffer allocate(uint64_t size)
{
    struct attn_buffer buffer;

    must(attn_memory_alloc(backend, size, &buffer, &err));
    return buffer;
}

void copy(struct attn_buffer to, struct attn_buffer from, uint64_t size, uint32_t kind, void *stream)
{
    must(attn_memory_copy(backend, &to, &from, size, kind, stream, &err));
}

struct attn_buffer at(const void *memory)
{
    return (struct attn_buffer){(void *)(uintptr_t)memory, 0};
}

void world_close(void)
{
    attn_backend_destroy(backend);
    attn_context_destroy(context);
}
