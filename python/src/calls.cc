// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Problem, backend and plan of a call are found again by its shape.
#include "calls.h"

#include <cmath>
#include <unordered_map>

#include <nanobind/stl/string.h>

namespace
{

struct Hash {
    size_t operator()(const Key &key) const
    {
        uint32_t words[sizeof(Key) / 4];
        uint64_t hash = 0;
        std::memcpy(words, &key, sizeof words);
        for (uint32_t word : words)
            hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        return hash ^ hash >> 32;
    }
};

constexpr size_t MOST_PLANS = 256;
// Plans of one wanted list. The pools of threads of its backends are shared by all plans.
struct Cache {
    std::unordered_map<Key, std::shared_ptr<Entry>, Hash> entries;
    std::unordered_map<uint64_t, std::shared_ptr<Backend>> backends; // by device
    std::shared_ptr<Entry> last;
    Key last_key{};
};

std::unordered_map<std::string, Cache> *caches = new std::unordered_map<std::string, Cache>;

// The problem of a key. Dense addressing: a sequence is a page of keys with strides, or packed rows of new
// keys.
attn_problem problem_of(const Key &key)
{
    attn_problem problem, resolved;
    ATTN_INIT(&problem);
    problem.q_dtype = key.q;
    problem.k_dtype = key.k;
    problem.v_dtype = key.v;
    problem.out_dtype = key.out;
    problem.heads = key.heads;
    problem.kv_heads = key.kv_heads;
    problem.head_dim = key.head_dim;
    problem.head_dim_vo = key.head_dim_vo;
    problem.addressing = ATTN_DENSE;
    problem.kv_source = key.packed ? ATTN_KV_NEW : ATTN_KV_CACHE;
    problem.causal = key.causal ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO;
    problem.align = key.align;
    problem.given = ATTN_GIVEN_WINDOW_LEFT | ATTN_GIVEN_WINDOW_RIGHT;
    problem.window_left = key.window_left;
    problem.window_right = key.window_right;
    problem.softcap = key.softcap;
    problem.mask = key.mask;
    problem.span = key.mask != ATTN_MASK_NONE ? ATTN_SPAN_FULL : 0;
    problem.sinks = key.sinks;
    problem.alibi = key.alibi;
    problem.lse = key.lse;
    problem.max_seqs = key.max_seqs;
    problem.max_q = key.max_q;
    problem.max_kv = key.max_kv;
    problem.max_rows = key.max_rows;
    Error error;
    check(attn_problem_resolve(&problem, &resolved, error.get()), error);
    return resolved;
}

std::string device_name(const Key &key)
{
    const char *type = key.device_type == ATTN_DEVICE_CPU      ? "cpu"
                       : key.device_type == ATTN_DEVICE_CUDA   ? "cuda"
                       : key.device_type == ATTN_DEVICE_ROCM   ? "rocm"
                       : key.device_type == ATTN_DEVICE_OPENCL ? "opencl"
                                                               : nullptr;
    if (type == nullptr)
        refuse("q", "q is in memory of DLPack's device type " + std::to_string(key.device_type) +
                        "; that of a CPU, CUDA, ROCm or OpenCL is accepted");
    return std::string(type) + ":" + std::to_string(key.device_id);
}

std::shared_ptr<Backend> open_for(const Key &key, const attn_problem &problem, const char *wanted)
{
    return open(*decide(process_context(), {problem}, wanted, device_name(key).c_str()), 0);
}

std::shared_ptr<Backend> backend_for(Cache &cache, const Key &key, const attn_problem &problem,
                                     const char *wanted)
{
    const uint64_t device = (uint64_t)key.device_type << 32 | (uint32_t)key.device_id;
    auto found = cache.backends.find(device);
    if (found != cache.backends.end())
        return found->second;
    return cache.backends[device] = open_for(key, problem, wanted);
}

std::shared_ptr<Entry> make_entry(Cache &cache, const Key &key, const char *wanted)
{
    const attn_problem problem = problem_of(key);
    std::shared_ptr<Backend> backend = backend_for(cache, key, problem, wanted);
    auto entry = std::make_shared<Entry>();
    attn_plan *made = nullptr;
    if (attn_plan_create(backend->get(), &problem, &made, nullptr) == ATTN_OK) {
        entry->plan = std::make_shared<Plan>(backend, problem, made);
    } else { // opened for another problem, it does not serve this one
        backend = open_for(key, problem, wanted);
        entry->plan = std::make_shared<Plan>(backend, problem);
    }
    entry->schedule = Memory(backend, entry->plan->sizes.schedule);
    entry->staging = Staging(backend, entry->plan->sizes.staging);
    if (!backend->is_host())
        entry->copied = Mark(backend);
    if (!key.packed) {
        const uint64_t bytes = (2 * (uint64_t)key.max_seqs + 1) * sizeof(int32_t);
        entry->host = Staging(backend, bytes);
        if (!backend->is_host())
            entry->arrays = Memory(backend, bytes);
    }
    return entry;
}

} // namespace

std::shared_ptr<Entry> find_entry(const Key &key, const std::optional<std::string> &wanted)
{
    static const std::string automatic;
    Cache &cache = (*caches)[wanted ? *wanted : automatic];
    if (cache.last && cache.last_key == key)
        return cache.last;
    auto found = cache.entries.find(key);
    if (found == cache.entries.end()) {
        if (cache.entries.size() >= MOST_PLANS)
            cache.entries.clear();
        found = cache.entries.emplace(key, make_entry(cache, key, wanted ? wanted->c_str() : nullptr)).first;
    }
    cache.last = found->second;
    cache.last_key = key;
    return cache.last;
}

// ---------------------------------------------------------------- arguments

uint32_t ceil_power(int64_t n, const char *name)
{
    uint32_t power = 1;
    if (n > INT32_MAX)
        refuse(name, std::string(name) + " counts " + std::to_string(n) + "; at most " +
                         std::to_string(INT32_MAX) + " is accepted");
    while (power < n)
        power *= 2;
    return power;
}

void need_shapes(const Array &q, const Array &k, const Array &v, const Array &out, int heads_dim)
{
    const int last = q.rank() - 1;
    if (k.size(heads_dim) == 0 || q.size(heads_dim) % k.size(heads_dim) != 0)
        refuse("k", "k has " + std::to_string(k.size(heads_dim)) + " heads; a divisor of the " +
                        std::to_string(q.size(heads_dim)) + " of q is accepted");
    k.need_size(last, q.size(last)).need_inner();
    v.need_size(heads_dim, k.size(heads_dim)).need_inner();
    out.need_size(heads_dim, q.size(heads_dim)).need_size(last, v.size(last)).need_inner();
    q.need_inner();
    for (const Array *array : {&k, &v, &out})
        if (array->device_type() != q.device_type() || array->device_id() != q.device_id())
            refuse(array->name(), std::string(array->name()) +
                                      " is in memory of another device than q; one device "
                                      "for all is accepted");
}

Key key_of(const Array &q, const Array &k, const Array &v, const Array &out, const Options &options)
{
    Key key{};
    key.device_type =
        q.device_type() == 3 || q.device_type() == 11 ? ATTN_DEVICE_CPU : (uint32_t)q.device_type();
    key.device_id = key.device_type == ATTN_DEVICE_CPU ? 0 : q.device_id();
    key.q = q.dtype();
    key.k = k.dtype();
    key.v = v.dtype();
    key.out = out.dtype();
    key.causal = options.causal;
    key.align = options.align_start ? ATTN_ALIGN_START : ATTN_ALIGN_END;
    key.window_left = options.window_left.value_or(-1);
    key.window_right = options.window_right.value_or(options.causal ? 0 : -1);
    key.softcap = options.softcap;
    key.mask = ATTN_MASK_NONE;
    for (const Array *array : {&q, &k, &v, &out})
        array->need_element();
    return key;
}

uint32_t alibi_kind(const std::string &name)
{
    if (name == "key")
        return ATTN_ALIBI_KEY;
    if (name != "distance")
        refuse("alibi", "alibi is '" + name +
                            "'; 'key' (slope * (key - query)) and 'distance' (-slope * |key - query|) are "
                            "accepted");
    return ATTN_ALIBI_DISTANCE;
}

float scale_of(std::optional<float> scale, int64_t head_dim)
{
    return scale ? *scale : 1.0f / std::sqrt((float)head_dim);
}

void give_lse(attn_tensors &tensors, const Array &lse, int token_dim, int head_dim)
{
    tensors.lse.buffer = lse.buffer();
    tensors.lse.dtype = ATTN_F32;
    tensors.lse.token_stride = lse.stride(token_dim);
    tensors.lse.head_stride = lse.stride(head_dim);
}

std::optional<int> window(int keys)
{
    return keys < 0 ? std::optional<int>() : keys;
}

// ---------------------------------------------------------------- what is kept

// Name, device and kernels of every plan that calls have made.
static nb::list plans()
{
    nb::list list;
    for (const auto &[wanted, cache] : *caches)
        for (const auto &[key, entry] : cache.entries) {
            nb::dict dict;
            dict["backend"] = attn_backend_get_name(entry->plan->backend->get());
            dict["device"] = attn_backend_get_device(entry->plan->backend->get());
            dict["problem"] = format(entry->plan->problem);
            dict["kernels"] = entry->plan->kernels();
            list.append(dict);
        }
    return list;
}

void bind_calls(nb::module_ &module)
{
    module.def("plans", plans,
               "Backend, device, problem and kernels of each plan that attention calls have made.");
    module.def(
        "forget_plans", [] { caches->clear(); }, "Frees plans and backends of attention calls.");
}
