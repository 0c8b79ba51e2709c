// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What calls over dense keys and over packed sequences share: the plans that are found again by their shape.
#pragma once

#include <cstring>
#include <optional>

#include "plan.h"

// What the plan of a call depends on. Compared and hashed as bytes, so it has no padding.
struct Key {
    uint32_t device_type, heads, kv_heads, head_dim, head_dim_vo, q, k, v, out, causal, align, mask, sinks,
        alibi, lse, packed, max_seqs, max_q, max_kv, max_rows;
    int32_t device_id, window_left, window_right;
    float softcap;

    bool operator==(const Key &other) const
    {
        return std::memcmp(this, &other, sizeof *this) == 0;
    }
};
static_assert(sizeof(Key) == 24 * 4, "Key has padding");

// A plan, and the schedule of the last lengths that it was asked for.
struct Entry {
    std::shared_ptr<Plan> plan;
    Memory schedule, arrays; // arrays: q_offsets [n + 1] and kv_lens [n]
    Staging staging, host;
    Mark copied; // behind the last copies out of these two
    attn_batch batch{};
    attn_batch_host copies{};
    int64_t seqs = 0, rows = 0, columns = 0; // what the schedule is for
    std::vector<int32_t> kv_lens;
    std::vector<int32_t> differences; // lengths that follow from offsets
    std::mutex mutex;                 // of all that a call writes here
};

constexpr attn_device HOST = {ATTN_DEVICE_CPU, 0, {0, 0}};

struct Options {
    bool causal, align_start;
    std::optional<int> window_left, window_right;
    float softcap;
};

// The plan of a key on the backend that serves it, made at the first call; `wanted` is a list over
// ATTN_BACKEND.
std::shared_ptr<Entry> find_entry(const Key &key, const std::optional<std::string> &wanted);
// A maximum that many calls share: the next power of two.
uint32_t ceil_power(int64_t n, const char *name);

// That heads, dimensions and devices of four arrays go together; heads are dimension `heads_dim` of each.
void need_shapes(const Array &q, const Array &k, const Array &v, const Array &out, int heads_dim);
// What types, device and options say; the caller adds the sizes.
Key key_of(const Array &q, const Array &k, const Array &v, const Array &out, const Options &options);
uint32_t alibi_kind(const std::string &name);
float scale_of(std::optional<float> scale, int64_t head_dim);
void give_lse(attn_tensors &tensors, const Array &lse, int token_dim, int head_dim);
// Keys beside the query's own; fewer than none: all.
std::optional<int> window(int keys);
