/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The metadata of a code object: a msgpack map with a map for each kernel. */
#include <stdio.h>
#include <stdlib.h>

#include "emu-image.h"

struct pack {
    const uint8_t *at, *end;
};

enum pack_kind { PACK_BAD, PACK_NUMBER, PACK_STRING, PACK_ARRAY, PACK_MAP };

struct item {
    enum pack_kind kind;
    uint64_t number; /* or the length */
    const char *string;
};

static uint64_t big_endian(struct pack *p, unsigned bytes)
{
    uint64_t x = 0;
    if ((size_t)(p->end - p->at) < bytes) {
        p->at = p->end;
        return 0;
    }
    for (unsigned i = 0; i < bytes; i++)
        x = x << 8 | *p->at++;
    return x;
}

static struct item string_item(struct pack *p, uint64_t n)
{
    struct item it = {PACK_BAD, n, (const char *)p->at};
    if ((uint64_t)(p->end - p->at) < n)
        return it;
    p->at += n;
    it.kind = PACK_STRING;
    return it;
}

/* The head of the next item; the items of arrays and maps follow it. */
static struct item next(struct pack *p)
{
    struct item it = {PACK_BAD, 0, NULL};
    if (p->at == p->end)
        return it;
    uint8_t c = *p->at++;
    if (c < 0x80)
        return (struct item){PACK_NUMBER, c, NULL};
    if (c < 0x90)
        return (struct item){PACK_MAP, c & 15u, NULL};
    if (c < 0xa0)
        return (struct item){PACK_ARRAY, c & 15u, NULL};
    if (c < 0xc0)
        return string_item(p, c & 31u);
    if (c == 0xc2 || c == 0xc3)
        return (struct item){PACK_NUMBER, c & 1u, NULL};
    if (c >= 0xcc && c <= 0xcf)
        return (struct item){PACK_NUMBER, big_endian(p, 1u << (c - 0xcc)), NULL};
    if (c >= 0xd9 && c <= 0xdb)
        return string_item(p, big_endian(p, 1u << (c - 0xd9)));
    if (c == 0xdc || c == 0xdd)
        return (struct item){PACK_ARRAY, big_endian(p, c == 0xdc ? 2 : 4), NULL};
    if (c == 0xde || c == 0xdf)
        return (struct item){PACK_MAP, big_endian(p, c == 0xde ? 2 : 4), NULL};
    return it;
}

static bool skip(struct pack *p, int depth)
{
    struct item it = next(p);
    if (it.kind == PACK_BAD || depth > 16)
        return false;
    uint64_t inside = it.kind == PACK_ARRAY ? it.number : it.kind == PACK_MAP ? 2 * it.number : 0;
    for (uint64_t i = 0; i < inside; i++)
        if (!skip(p, depth + 1))
            return false;
    return true;
}

static bool is(struct item it, const char *text)
{
    return it.kind == PACK_STRING && it.number == strlen(text) && memcmp(it.string, text, it.number) == 0;
}

static uint16_t hidden_kind(struct item it)
{
    static const struct {
        const char *name;
        uint16_t kind;
    } kinds[] = {
        {"hidden_block_count_x", HIDDEN_BLOCK_COUNT_X},
        {"hidden_block_count_y", HIDDEN_BLOCK_COUNT_Y},
        {"hidden_block_count_z", HIDDEN_BLOCK_COUNT_Z},
        {"hidden_group_size_x", HIDDEN_GROUP_SIZE_X},
        {"hidden_group_size_y", HIDDEN_GROUP_SIZE_Y},
        {"hidden_group_size_z", HIDDEN_GROUP_SIZE_Z},
        {"hidden_remainder_x", HIDDEN_ZERO},
        {"hidden_remainder_y", HIDDEN_ZERO},
        {"hidden_remainder_z", HIDDEN_ZERO},
        {"hidden_global_offset_x", HIDDEN_ZERO},
        {"hidden_global_offset_y", HIDDEN_ZERO},
        {"hidden_global_offset_z", HIDDEN_ZERO},
        {"hidden_grid_dims", HIDDEN_GRID_DIMS},
        {"hidden_dynamic_lds_size", HIDDEN_DYNAMIC_LDS},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(it, kinds[i].name))
            return kinds[i].kind;
    return HIDDEN_OTHER;
}

static bool read_argument(struct pack *p, struct emu_kernel *k)
{
    struct item map = next(p);
    struct hidden h = {0};
    bool hidden = false;
    for (uint64_t i = 0; i < map.number; i++) {
        struct item key = next(p);
        if (is(key, ".offset")) {
            h.offset = (uint32_t)next(p).number;
        } else if (is(key, ".size")) {
            h.size = (uint16_t)next(p).number;
        } else if (is(key, ".value_kind")) {
            struct item value = next(p);
            hidden = value.kind == PACK_STRING && value.number > 7 && memcmp(value.string, "hidden_", 7) == 0;
            h.kind = hidden_kind(value);
        } else if (!skip(p, 0)) {
            return false;
        }
    }
    if (!hidden && h.offset + h.size > k->properties.argument_bytes)
        k->properties.argument_bytes = h.offset + h.size;
    if (hidden && k->hidden_count < HIDDEN_MAX)
        k->hidden[k->hidden_count++] = h;
    return map.kind == PACK_MAP;
}

static bool read_number(struct pack *p, struct item key, struct emu_properties *to)
{
    const struct {
        const char *name;
        uint32_t *field;
    } fields[] = {
        {".vgpr_count", &to->vgprs},
        {".agpr_count", &to->agprs},
        {".sgpr_count", &to->sgprs},
        {".vgpr_spill_count", &to->vgpr_spills},
        {".sgpr_spill_count", &to->sgpr_spills},
        {".group_segment_fixed_size", &to->lds_bytes},
        {".private_segment_fixed_size", &to->scratch_bytes},
        {".kernarg_segment_size", &to->kernarg_bytes},
        {".wavefront_size", &to->wave_size},
        {".max_flat_workgroup_size", &to->max_threads},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (is(key, fields[i].name)) {
            struct item value = next(p);
            *fields[i].field = (uint32_t)value.number;
            return value.kind == PACK_NUMBER;
        }
    }
    return skip(p, 0);
}

static bool read_kernel(struct pack *p, struct emu_image *image)
{
    struct emu_kernel *k = calloc(1, sizeof *k);
    struct item map = next(p);
    struct item name = {PACK_BAD, 0, NULL};
    bool good = k != NULL && map.kind == PACK_MAP;
    for (uint64_t i = 0; good && i < map.number; i++) {
        struct item key = next(p);
        if (is(key, ".name")) {
            name = next(p);
        } else if (is(key, ".args")) {
            struct item list = next(p);
            good = list.kind == PACK_ARRAY;
            for (uint64_t j = 0; good && j < list.number; j++)
                good = read_argument(p, k);
        } else {
            good = read_number(p, key, &k->properties);
        }
    }
    for (size_t i = 0; good && i < image->kernel_count; i++) {
        struct emu_kernel *to = &image->kernels[i];
        if (is(name, to->name)) {
            to->properties = k->properties;
            to->hidden_count = k->hidden_count;
            memcpy(to->hidden, k->hidden, sizeof to->hidden);
        }
    }
    free(k);
    return good;
}

bool notes_read(struct emu_image *image, const uint8_t *note, size_t size)
{
    struct pack p = {note, note + size};
    struct item map = next(&p);
    if (map.kind != PACK_MAP)
        return false;
    for (uint64_t i = 0; i < map.number; i++) {
        if (!is(next(&p), "amdhsa.kernels")) {
            if (!skip(&p, 0))
                return false;
            continue;
        }
        struct item list = next(&p);
        if (list.kind != PACK_ARRAY)
            return false;
        for (uint64_t j = 0; j < list.number; j++)
            if (!read_kernel(&p, image))
                return false;
    }
    return true;
}
