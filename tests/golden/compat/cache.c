/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The original's cache: shapes, views, element types, and which paged decode kernel reads it. */
#include "flavour.h"

enum { PARTITION = 512, VECTOR_BYTES = 16 };

int32_t compat_cache(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    static const char *const names[] = {"auto", "fp8", "fp8_e4m3", "fp8_e5m2"};
    bool known = desc->kv_dtype == NULL;

    if (flavour->id == FLASH_ATTN && desc->block % 16 != 0)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_BLOCK_SIZE, "block",
                           "Block size must be a multiple of 16. block is %u", desc->block);
    if (desc->block == 0)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_BLOCK_SIZE, "block",
                           "block is 0; a positive number is accepted");
    for (size_t i = 0; !known && i < sizeof names / sizeof *names; i++)
        known = strcmp(desc->kv_dtype, names[i]) == 0;
    if (!known)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_DTYPE_K, "kv_dtype",
                           "Unknown kv cache dtype: %.64s (auto, fp8, fp8_e4m3 and fp8_e5m2 are accepted)",
                           desc->kv_dtype);
    if (desc->kv_heads == 0 || desc->head_dim == 0)
        return compat_fail(err, ATTN_E_INVALID, 0, desc->kv_heads == 0 ? "kv_heads" : "head_dim",
                           "%s is 0; a positive number is accepted",
                           desc->kv_heads == 0 ? "kv_heads" : "head_dim");
    return ATTN_OK;
}

void compat_cache_values(const struct flavour *flavour, const struct compat_desc *desc,
                         struct compat_values *out)
{
    bool pages_first = flavour->id == FLASHINFER;

    out->cache_dims[0] = pages_first ? desc->pages : 2;
    out->cache_dims[1] = pages_first ? 2 : desc->pages;
    if (flavour->paged) {
        out->cache_rank = 3;
        out->cache_dims[2] = (uint64_t)desc->block * desc->kv_heads * desc->head_dim;
        return;
    }
    out->cache_rank = 5;
    out->cache_dims[2] = desc->block;
    out->cache_dims[3] = desc->kv_heads;
    out->cache_dims[4] = desc->head_dim;
}

/* Elements of a 16-byte vector: the innermost axis of the key view; 0 if the type has no such vector. */
static uint32_t vector_elements(const struct compat_desc *desc)
{
    bool bytes = desc->kv_dtype != NULL && strncmp(desc->kv_dtype, "fp8", 3) == 0;
    uint32_t size = bytes ? 1 : attn_dtype_size(desc->model_dtype);

    return size == 0 ? 0 : VECTOR_BYTES / size;
}

int32_t compat_views(const struct flavour *flavour, const struct compat_desc *desc, struct attn_error *err)
{
    uint32_t x = vector_elements(desc);

    if (!flavour->paged)
        return ATTN_OK;
    if (x == 0)
        return compat_fail(err, ATTN_E_INVALID, 0, "model_dtype",
                           "model_dtype is 0x%x; an enum attn_dtype is accepted", desc->model_dtype);
    if (desc->block == 0 || desc->kv_heads == 0 || desc->head_dim == 0 || desc->head_dim % x != 0)
        return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_HEAD_DIM, "head_dim",
                           "head_dim is %u, block %u, kv_heads %u; positive numbers, and a multiple of %u "
                           "for head_dim, are accepted",
                           desc->head_dim, desc->block, desc->kv_heads, x);
    return ATTN_OK;
}

static void pack(uint32_t rank, const uint64_t *dims, uint64_t *strides)
{
    uint64_t stride = 1;

    for (uint32_t i = rank; i > 0; i--) {
        strides[i - 1] = stride;
        stride *= dims[i - 1];
    }
}

void compat_view_values(const struct flavour *flavour, const struct compat_desc *desc,
                        struct compat_values *out)
{
    if (!flavour->paged) {
        const uint64_t dims[4] = {desc->pages, desc->block, desc->kv_heads, desc->head_dim};
        out->key_rank = out->value_rank = 4;
        memcpy(out->key_dims, dims, sizeof dims);
        memcpy(out->value_dims, dims, sizeof dims);
    } else {
        uint32_t x = vector_elements(desc);
        const uint64_t key[5] = {desc->pages, desc->kv_heads, desc->head_dim / x, desc->block, x};
        const uint64_t value[4] = {desc->pages, desc->kv_heads, desc->head_dim, desc->block};
        out->key_rank = 5;
        out->value_rank = 4;
        memcpy(out->key_dims, key, sizeof key);
        memcpy(out->value_dims, value, sizeof value);
    }
    pack(out->key_rank, out->key_dims, out->key_strides);
    pack(out->value_rank, out->value_dims, out->value_strides);
    if (flavour->id == FLASHINFER) {
        /* Keys and values of a page lie side by side. */
        out->key_strides[0] *= 2;
        out->value_strides[0] *= 2;
    }
}

int32_t compat_cache_dtype(const char *name, uint32_t model_dtype, uint32_t *out, struct attn_error *err)
{
    static const struct {
        const char *name;
        uint32_t dtype;
    } types[] = {{"half", ATTN_F16}, {"bfloat16", ATTN_BF16}, {"float", ATTN_F32}, {"fp8", 0}};

    if (name != NULL && out != NULL && strcmp(name, "auto") == 0) {
        *out = model_dtype;
        return ATTN_OK;
    }
    for (size_t i = 0; name != NULL && out != NULL && i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].dtype;
            return ATTN_OK;
        }
    return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_DTYPE_K, "name",
                       "Invalid kv cache dtype: %.64s (auto, half, bfloat16, float and fp8 are accepted)",
                       name != NULL ? name : "None");
}

int32_t compat_fp8_dtype(const char *name, uint32_t *out, struct attn_error *err)
{
    if (name != NULL && out != NULL && (strcmp(name, "fp8") == 0 || strcmp(name, "fp8_e4m3") == 0)) {
        *out = ATTN_E4M3;
        return ATTN_OK;
    }
    if (name != NULL && out != NULL && strcmp(name, "fp8_e5m2") == 0) {
        *out = ATTN_E5M2;
        return ATTN_OK;
    }
    return compat_fail(err, ATTN_E_INVALID, ATTN_REASON_DTYPE_K, "name",
                       "Unrecognized FP8 dtype: %.64s (fp8, fp8_e4m3 and fp8_e5m2 are accepted)",
                       name != NULL ? name : "None");
}

uint32_t compat_paged_version(uint64_t seqs, uint64_t heads, uint64_t max_len, uint64_t *out_partitions)
{
    uint64_t partitions = max_len / PARTITION + (max_len % PARTITION != 0);
    uint64_t most_heads = seqs == 0 ? 0 : UINT64_MAX / seqs;
    /* More blocks than a device has places for need no splitting along the keys. */
    bool many = heads > most_heads || seqs * heads > 512;

    if (out_partitions != NULL)
        *out_partitions = partitions;
    return max_len <= 8192 && (partitions == 1 || many) ? 1 : 2;
}

int32_t compat_rocm_custom(const char *arch, uint32_t q_dtype, uint32_t head_dim, uint32_t block,
                           uint32_t queries_per_kv, uint64_t max_len)
{
    static const char *const served[] = {"gfx90a", "gfx940", "gfx941", "gfx942"};
    bool known = false;

    /* "gfx90a:sramecc+:xnack-" is the same device. */
    for (size_t i = 0; arch != NULL && i < sizeof served / sizeof *served; i++) {
        size_t length = strlen(served[i]);
        known =
            known || (strncmp(arch, served[i], length) == 0 && (arch[length] == '\0' || arch[length] == ':'));
    }
    return known && (q_dtype == ATTN_F16 || q_dtype == ATTN_BF16) && (head_dim == 64 || head_dim == 128) &&
           (block == 16 || block == 32) && queries_per_kv >= 1 && queries_per_kv <= 16 && max_len <= 32768;
}
