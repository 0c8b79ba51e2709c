// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention in one call: problem, backend, plan and schedule are found again by the shape of the call.
#include "plan.h"
#include "torch.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_map>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace
{

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

constexpr size_t MOST_PLANS = 256;
constexpr attn_device HOST = {ATTN_DEVICE_CPU, 0, {0, 0}};

// Plans of one wanted list. The pools of threads of its backends are shared by all plans.
struct Cache {
    std::unordered_map<Key, std::shared_ptr<Entry>, Hash> entries;
    std::unordered_map<uint64_t, std::shared_ptr<Backend>> backends; // by device
    std::shared_ptr<Entry> last;
    Key last_key{};
};

std::unordered_map<std::string, Cache> *caches = new std::unordered_map<std::string, Cache>;

struct Options {
    bool causal, align_start;
    std::optional<int> window_left, window_right;
    float softcap;
};

// A maximum that many calls share: the next power of two.
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

// ---------------------------------------------------------------- lengths

// Writes offsets and lengths, and plans them, unless the last call had the same.
void prepare(Entry &entry, int64_t seqs, int64_t rows, int64_t columns, const int32_t *kv_lens,
             uintptr_t stream)
{
    const size_t given = kv_lens != nullptr ? (size_t)seqs : 0;
    if (entry.seqs == seqs && entry.rows == rows && entry.columns == columns &&
        entry.kv_lens.size() == given &&
        (given == 0 || std::memcmp(entry.kv_lens.data(), kv_lens, given * sizeof *kv_lens) == 0))
        return;
    Backend &backend = *entry.plan->backend;
    Error error;
    if (!backend.is_host()) // not for the stream, which may have much to do
        entry.copied.wait(stream);
    entry.seqs = 0;
    int32_t *offsets = (int32_t *)entry.host.span().buffer.data, *lens = offsets + seqs + 1;
    for (int64_t i = 0; i <= seqs; i++)
        offsets[i] = (int32_t)(i * rows);
    for (int64_t i = 0; i < seqs; i++)
        lens[i] = kv_lens != nullptr ? kv_lens[i] : (int32_t)columns;
    attn_buffer arrays = entry.host.span().buffer;
    if (!backend.is_host()) {
        arrays = entry.arrays.span().buffer;
        const attn_buffer from = entry.host.span().buffer;
        check(attn_memory_copy(backend.get(), &arrays, &from, (2 * (uint64_t)seqs + 1) * sizeof(int32_t),
                               ATTN_COPY_TO_DEVICE, (void *)stream, error.get()),
              error);
    }
    attn_batch &batch = entry.batch;
    ATTN_INIT(&batch);
    ATTN_INIT(&entry.copies);
    batch.given = ATTN_GIVEN_HOST_COPIES;
    batch.host = &entry.copies;
    batch.seqs = (uint32_t)seqs;
    batch.num_tokens = (uint32_t)(seqs * rows);
    batch.max_q = (uint32_t)rows;
    batch.max_kv = (uint32_t)columns;
    batch.pages = (uint32_t)seqs;
    batch.q_offsets = batch.kv_lens = arrays;
    batch.kv_lens.byte_offset += (uint64_t)(seqs + 1) * sizeof(int32_t);
    entry.copies.q_offsets = offsets;
    entry.copies.kv_lens = lens;
    const attn_span schedule = entry.schedule.span(), staging = entry.staging.span();
    const int32_t status =
        attn_plan_prepare(entry.plan->handle.get(), &batch, &schedule, &staging, (void *)stream, error.get());
    if (!backend.is_host())
        entry.copied.set(stream);
    check(status, error);
    entry.kv_lens.assign(kv_lens, kv_lens + given);
    entry.seqs = seqs;
    entry.rows = rows;
    entry.columns = columns;
}

// ---------------------------------------------------------------- layouts

// How the batch of q and out becomes one axis of tokens or of heads, which tensors of a run have; or is run
// one by one.
enum class Fold { TOKENS, HEADS, EACH };

bool folds_to_tokens(const Array &x)
{
    return x.size(0) == 1 || x.size(2) == 1 || x.stride(0) == x.size(2) * x.stride(2);
}

// Heads of the batch one behind the other, as in a contiguous [batch, heads, tokens, dim].
bool folds_to_heads(const Array &x)
{
    return x.size(0) == 1 || x.size(1) == 1 || x.stride(0) == x.size(1) * x.stride(1);
}

bool mask_folds_to_heads(const Array &mask, int64_t seqs, int64_t heads)
{
    return (mask.size(0) == 1 && mask.size(1) == 1) ||
           (mask.size(0) == seqs && mask.size(1) == heads && mask.stride(0) == heads * mask.stride(1));
}

attn_tensor as_tokens(const Array &x)
{
    attn_tensor tensor{};
    tensor.buffer = x.buffer();
    tensor.dtype = x.dtype();
    tensor.token_stride = x.size(2) == 1 ? x.stride(0) : x.stride(2);
    tensor.head_stride = x.stride(1);
    return tensor;
}

attn_tensor as_heads(const Array &x)
{
    attn_tensor tensor{};
    tensor.buffer = x.buffer();
    tensor.dtype = x.dtype();
    tensor.token_stride = x.stride(2);
    tensor.head_stride = x.size(1) == 1 ? x.stride(0) : x.stride(1);
    return tensor;
}

void describe_keys(attn_kv_desc &desc, const Array &q, const Array &k, const Array &v, Fold fold)
{
    const bool heads = fold == Fold::HEADS;
    ATTN_INIT(&desc);
    desc.k_dtype = k.dtype();
    desc.v_dtype = v.dtype();
    desc.pages = fold == Fold::TOKENS ? (uint32_t)k.size(0) : 1;
    const bool empty = k.size(2) == 0; // a cache has a key at least; one that no length counts is never read
    desc.block = empty ? 1 : (uint32_t)k.size(2);
    desc.kv_heads = (uint32_t)(heads ? k.size(0) * k.size(1) : k.size(1));
    desc.head_dim = (uint32_t)k.size(3);
    desc.head_dim_vo = (uint32_t)v.size(3);
    desc.k = empty ? q.buffer() : k.buffer();
    desc.k_page_stride = heads ? 0 : k.stride(0);
    desc.k_token_stride = k.stride(2);
    desc.k_head_stride = heads && k.size(1) == 1 ? k.stride(0) : k.stride(1);
    desc.v = empty ? q.buffer() : v.buffer();
    desc.v_page_stride = heads ? 0 : v.stride(0);
    desc.v_token_stride = v.stride(2);
    desc.v_head_stride = heads && v.size(1) == 1 ? v.stride(0) : v.stride(1);
}

// ---------------------------------------------------------------- calls

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

Fold choose_fold(const Array &q, const Array &k, const Array &v, const Array &out, const Array &mask,
                 const Array &per_head, const Array &kv_lens, const Array &lse)
{
    const bool single = q.size(0) == 1 || q.size(2) == 1;
    if (folds_to_tokens(q) && folds_to_tokens(out) && (!lse || single))
        return Fold::TOKENS;
    if (!per_head && !kv_lens && !lse && folds_to_heads(q) && folds_to_heads(k) && folds_to_heads(v) &&
        folds_to_heads(out) && (!mask || mask_folds_to_heads(mask, q.size(0), q.size(1))))
        return Fold::HEADS;
    return Fold::EACH;
}

void advance(attn_buffer &buffer, int64_t bytes)
{
    buffer.byte_offset += (uint64_t)bytes;
}

// Runs the sequences of a batch one after the other; `tensors` and `desc` are those of the first.
void run_each(Entry &entry, attn_tensors &tensors, attn_kv_desc &desc, const Array &q, const Array &k,
              const Array &v, const Array &out, const Array &lse, const Mask &mask, const int32_t *kv_lens,
              uintptr_t stream)
{
    for (int64_t s = 0; s < q.size(0); s++) {
        prepare(entry, 1, q.size(2), k.size(2), kv_lens != nullptr ? kv_lens + s : nullptr, stream);
        entry.plan->run(entry.batch, tensors, entry.schedule, stream);
        advance(tensors.q.buffer, q.stride(0));
        advance(tensors.out.buffer, out.stride(0));
        advance(desc.k, k.stride(0));
        advance(desc.v, v.stride(0));
        advance(tensors.mask, mask.seq_stride);
        if (lse)
            advance(tensors.lse.buffer, lse.stride(0));
    }
}

// The arguments of a call over dense keys, as views; absent ones are empty.
struct Dense {
    const Array &q, &k, &v, &out, &sinks, &mask, &slopes, &lens, &lse;
    Options options;
    std::optional<float> scale;
    uint32_t alibi; // what slopes are, if there are any

    void check() const;
    Key key(Fold fold, uint32_t mask_kind) const;
    void fill(attn_tensors &tensors, const Key &key, const attn_device &device, bool heads) const;
    void run(const std::optional<std::string> &wanted, uintptr_t stream) const;
};

void Dense::check() const
{
    q.need_rank(4);
    k.need_rank(4).need_size(0, q.size(0));
    v.need_rank(4).need_size(0, q.size(0)).need_size(2, k.size(2));
    out.need_rank(4).need_size(0, q.size(0)).need_size(2, q.size(2));
    need_shapes(q, k, v, out, 1);
    if (q.size(0) * q.size(1) * q.size(2) == 0)
        return;
    if (lens)
        lens.need_on(HOST).need_dtype(ATTN_INT32).need_list(q.size(0)).need_size(0, q.size(0));
    if (lse)
        lse.need_rank(3).need_size(0, q.size(0)).need_size(1, q.size(1)).need_size(2, q.size(2));
}

Key Dense::key(Fold fold, uint32_t mask_kind) const
{
    const int64_t seqs = fold == Fold::TOKENS ? q.size(0) : 1, rows = q.size(2), columns = k.size(2),
                  times = fold == Fold::HEADS ? q.size(0) : 1;
    Key key = key_of(q, k, v, out, options);
    key.heads = (uint32_t)(q.size(1) * times);
    key.kv_heads = (uint32_t)(k.size(1) * times);
    key.head_dim = (uint32_t)q.size(3);
    key.head_dim_vo = (uint32_t)v.size(3);
    key.mask = mask_kind;
    key.sinks = (bool)sinks;
    key.alibi = slopes ? alibi : ATTN_ALIBI_NONE;
    key.lse = (bool)lse;
    key.max_seqs = ceil_power(seqs, "q");
    key.max_q = ceil_power(rows, "q");
    key.max_kv = ceil_power(columns < 1024 ? 1024 : columns, "k");
    key.max_rows = ceil_power(seqs * rows, "q");
    return key;
}

void Dense::fill(attn_tensors &tensors, const Key &key, const attn_device &device, bool heads) const
{
    give_sinks(tensors, sinks, key.heads, device);
    give_slopes(tensors, slopes, key.heads, device);
    tensors.softmax_scale = scale_of(scale, q.size(3));
    tensors.q = heads ? as_heads(q) : as_tokens(q);
    tensors.out = heads ? as_heads(out) : as_tokens(out);
    if (lse)
        give_lse(tensors, lse.need_on(device).need_dtype(ATTN_F32), q.size(2) == 1 ? 0 : 2, 1);
}

void Dense::run(const std::optional<std::string> &wanted, uintptr_t stream) const
{
    check();
    if (q.size(0) * q.size(1) * q.size(2) == 0)
        return;
    const Fold fold = choose_fold(q, k, v, out, mask, sinks ? sinks : slopes, lens, lse);
    attn_tensors tensors;
    attn_kv_desc desc;
    ATTN_INIT(&tensors);
    Mask given;
    if (mask)
        given = Mask(mask, q.size(0), q.size(1), q.size(2), k.size(2));
    const Key key = this->key(fold, given.kind);
    const std::shared_ptr<Entry> entry = find_entry(key, wanted);
    const attn_device &device = entry->plan->backend->device;
    if (mask)
        mask.need_on(device);
    given.give(tensors);
    fill(tensors, key, device, fold == Fold::HEADS);
    describe_keys(desc, q, k, v, fold);
    tensors.kv_desc = &desc;

    std::unique_lock<std::mutex> lock(entry->mutex, std::try_to_lock);
    if (!lock.owns_lock()) { // another thread runs this plan, and needs the lock of Python to end
        nb::gil_scoped_release release;
        lock.lock();
    }
    const int32_t *lengths = lens ? (const int32_t *)lens.data() : nullptr;
    if (fold == Fold::EACH) {
        run_each(*entry, tensors, desc, q, k, v, out, lse, given, lengths, stream);
        return;
    }
    prepare(*entry, fold == Fold::TOKENS ? q.size(0) : 1, q.size(2), k.size(2), lengths, stream);
    entry->plan->run(entry->batch, tensors, entry->schedule, stream);
}

// ---------------------------------------------------------------- results

// An array for the result where the caller gives none, which libattn.attention promises the layout of: that
// of a contiguous q, else [batch, n, heads, dim].
nb::object empty_like(nb::handle q_, const Array &q, nb::handle v_, const Array &v)
{
    const Torch *torch = q.has_table() ? Torch::find() : nullptr;
    if (torch == nullptr || !torch->is_plain(q_) || q.rank() != 4 || v.rank() != 4) {
        static const nb::object &general =
            *new nb::object(nb::module_::import_("libattn").attr("_empty_like")); // of any library
        return general(q_, v_);
    }
    const int64_t sizes[] = {q.size(0), q.size(1), q.size(2), v.size(3)};
    if (q.is_contiguous())
        return torch->empty(q_, q, sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1});
    const int64_t row = sizes[1] * sizes[3];
    return torch->empty(q_, q, sizes, {sizes[2] * row, sizes[3], row, 1});
}

nb::object attention(nb::handle q_, nb::handle k_, nb::handle v_, nb::handle out_, bool causal,
                     bool align_start, std::optional<float> scale, std::optional<int> window_left,
                     std::optional<int> window_right, float softcap, nb::handle sinks_, nb::handle mask_,
                     nb::handle slopes_, const std::string &alibi, nb::handle kv_lens_, nb::handle lse_,
                     const std::optional<std::string> &wanted, std::optional<uintptr_t> given_stream)
{
    const Array q(q_, "q"), k(k_, "k"), v(v_, "v");
    const nb::object made = out_.is_none() ? empty_like(q_, q, v_, v) : nb::borrow(out_);
    const Array out(made, "out", true), sinks = optional(sinks_, "sinks"), mask = optional(mask_, "mask"),
                                        slopes = optional(slopes_, "alibi_slopes"),
                                        lens = optional(kv_lens_, "kv_lens"),
                                        lse = optional(lse_, "lse", true);
    const Options options = {causal, align_start, window_left, window_right, softcap};
    const uint32_t kind = slopes ? alibi_kind(alibi) : ATTN_ALIBI_NONE;
    const Dense call = {q, k, v, out, sinks, mask, slopes, lens, lse, options, scale, kind};
    call.run(wanted, given_stream ? *given_stream : q.stream());
    return made;
}

// As libattn.torch promises: as q is if its sequences are one behind the other, else [batch, n, heads, dim].
nb::object empty_for(const Torch &torch, nb::handle q_, const Array &q, const Array &v)
{
    const int64_t batch = q.size(0), heads = q.size(1), n = q.size(2), dim = v.size(3), row = heads * dim;
    if (batch > 1 && n > 1 && q.step(0) == heads * q.step(1))
        return torch.empty(q_, q, {batch, heads, n, dim}, {n * row, n * dim, dim, 1});
    return torch.empty(q_, q, {batch, heads, n, dim}, {n * row, dim, row, 1});
}

// Keys beside the query's own; fewer than none: all.
std::optional<int> window(int keys)
{
    return keys < 0 ? std::optional<int>() : keys;
}

nb::object torch_attention(nb::handle q_, nb::handle k_, nb::handle v_, bool any_heads, nb::handle mask_,
                           bool causal, bool align_start, std::optional<float> scale, int window_left,
                           int window_right, float softcap, nb::handle sinks_, nb::handle slopes_,
                           nb::handle kv_lens_)
{
    const Torch *torch = Torch::find();
    if (torch == nullptr || !torch->is_plain(q_) || !torch->is_plain(k_) || !torch->is_plain(v_) ||
        torch->is_watched() || torch->wants_gradient({q_, k_, v_, mask_, sinks_}))
        return nb::none();
    const Array q(q_, "q"), k(k_, "k"), v(v_, "v");
    if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4 || (!any_heads && q.size(1) != k.size(1)))
        return nb::none();
    nb::object made = empty_for(*torch, q_, q, v);
    const Array out(made, "out", true), sinks = optional(sinks_, "sinks"), mask = optional(mask_, "mask"),
                                        slopes = optional(slopes_, "alibi_slopes"),
                                        lens = optional(kv_lens_, "kv_lens"), lse;
    const Options options = {causal, align_start, window(window_left), window(window_right), softcap};
    const Dense call = {q, k, v, out, sinks, mask, slopes, lens, lse, options, scale, ATTN_ALIBI_KEY};
    call.run(std::nullopt, q.stream());
    return made;
}

// The arguments of a call over packed sequences, as views; absent ones are empty.
struct Packed {
    const Array &q, &k, &v, &out, &sinks, &slopes, &lse, &q_offsets, &kv_offsets, &kv_lens;
    int64_t max_q, max_kv;
    Options options;
    std::optional<float> scale;
    uint32_t alibi; // what slopes are, if there are any

    void check() const;
    Key key() const;
    void describe(attn_batch &batch, attn_batch_host &copies, const Backend &backend) const;
    void fill(attn_tensors &tensors, const attn_device &device) const;
    void run(const std::optional<std::string> &wanted, uintptr_t stream) const;
    int64_t seqs() const
    {
        return q_offsets.size(0) - 1;
    }
};

void Packed::check() const
{
    q.need_rank(3);
    k.need_rank(3);
    v.need_rank(3).need_size(0, k.size(0));
    out.need_rank(3).need_size(0, q.size(0));
    need_shapes(q, k, v, out, 1);
    if (q.size(0) * q.size(1) == 0)
        return;
    q_offsets.need_dtype(ATTN_INT32).need_list(2);
    if (lse)
        lse.need_rank(2).need_size(0, q.size(0)).need_size(1, q.size(1));
}

Key Packed::key() const
{
    Key key = key_of(q, k, v, out, options);
    key.packed = 1;
    key.heads = (uint32_t)q.size(1);
    key.kv_heads = (uint32_t)k.size(1);
    key.head_dim = (uint32_t)q.size(2);
    key.head_dim_vo = (uint32_t)v.size(2);
    key.sinks = (bool)sinks;
    key.alibi = slopes ? alibi : ATTN_ALIBI_NONE;
    key.lse = (bool)lse;
    key.max_seqs = ceil_power(seqs(), "q_offsets");
    key.max_q = ceil_power(max_q, "max_q");
    key.max_kv = ceil_power(max_kv < 1024 ? 1024 : max_kv, "max_kv");
    key.max_rows = ceil_power(q.size(0), "q");
    return key;
}

void Packed::describe(attn_batch &batch, attn_batch_host &copies, const Backend &backend) const
{
    const int64_t count = seqs();
    const attn_device &device = backend.device;
    ATTN_INIT(&batch);
    ATTN_INIT(&copies);
    batch.seqs = (uint32_t)count;
    batch.num_tokens = (uint32_t)q.size(0);
    batch.max_q = (uint32_t)max_q;
    batch.max_kv = (uint32_t)max_kv;
    batch.q_offsets = q_offsets.need_on(device).buffer();
    batch.kv_offsets = kv_offsets.need_on(device).need_dtype(ATTN_INT32).need_list(count + 1).buffer();
    if (kv_lens)
        batch.kv_lens = kv_lens.need_on(device).need_dtype(ATTN_INT32).need_list(count).buffer();
    else if (!backend.is_host())
        refuse("kv_lens", "kv_lens is None; on a GPU an array i32 [n] is accepted");
    if (!backend.is_host())
        return;
    copies.q_offsets = (const int32_t *)q_offsets.data();
    copies.kv_offsets = (const int32_t *)kv_offsets.data();
    copies.kv_lens = (const int32_t *)kv_lens.data();
    batch.host = &copies;
    batch.given = ATTN_GIVEN_HOST_COPIES;
    if (copies.kv_offsets[count] > k.size(0))
        refuse("kv_offsets", "kv_offsets ends at " + std::to_string(copies.kv_offsets[count]) +
                                 "; at most the " + std::to_string(k.size(0)) + " tokens of k are accepted");
}

void Packed::fill(attn_tensors &tensors, const attn_device &device) const
{
    ATTN_INIT(&tensors);
    tensors.softmax_scale = scale_of(scale, q.size(2));
    tensors.q = q.tensor();
    tensors.k_new = k.tensor();
    tensors.v_new = v.tensor();
    tensors.out = out.tensor();
    give_sinks(tensors, sinks, (uint32_t)q.size(1), device);
    give_slopes(tensors, slopes, (uint32_t)q.size(1), device);
    if (lse)
        give_lse(tensors, lse.need_on(device).need_dtype(ATTN_F32), 0, 1);
}

// Lengths that follow from offsets on the host.
void take_differences(Entry &entry, attn_batch &batch, attn_batch_host &copies)
{
    entry.differences.resize(batch.seqs);
    for (uint32_t i = 0; i < batch.seqs; i++)
        entry.differences[i] = copies.kv_offsets[i + 1] - copies.kv_offsets[i];
    copies.kv_lens = entry.differences.data();
    batch.kv_lens = {entry.differences.data(), 0};
}

void Packed::run(const std::optional<std::string> &wanted, uintptr_t stream) const
{
    check();
    if (q.size(0) * q.size(1) == 0)
        return;
    const std::shared_ptr<Entry> entry = find_entry(key(), wanted);
    Plan &plan = *entry->plan;
    attn_batch batch;
    attn_batch_host copies;
    attn_tensors tensors;
    describe(batch, copies, *plan.backend);
    fill(tensors, plan.backend->device);

    Error error;
    std::unique_lock<std::mutex> lock(entry->mutex, std::try_to_lock);
    if (!lock.owns_lock()) {
        nb::gil_scoped_release release;
        lock.lock();
    }
    if (!kv_lens)
        take_differences(*entry, batch, copies);
    const attn_span schedule = entry->schedule.span(), staging = entry->staging.span();
    const bool pinned = !plan.backend->is_host() && staging.size > 0;
    if (pinned)
        entry->copied.wait(stream);
    const int32_t status =
        attn_plan_prepare(plan.handle.get(), &batch, &schedule, &staging, (void *)stream, error.get());
    if (pinned)
        entry->copied.set(stream);
    ::check(status, error);
    plan.run(batch, tensors, entry->schedule, stream);
}

void varlen_attention(nb::handle q_, nb::handle k_, nb::handle v_, nb::handle out_, nb::handle q_offsets_,
                      nb::handle kv_offsets_, nb::handle kv_lens_, int64_t max_q, int64_t max_kv, bool causal,
                      bool align_start, std::optional<float> scale, std::optional<int> window_left,
                      std::optional<int> window_right, float softcap, nb::handle sinks_, nb::handle slopes_,
                      const std::string &alibi, nb::handle lse_, const std::optional<std::string> &wanted,
                      std::optional<uintptr_t> given_stream)
{
    const Options options = {causal, align_start, window_left, window_right, softcap};
    const Array q(q_, "q"), k(k_, "k"), v(v_, "v"), out(out_, "out", true),
        sinks = optional(sinks_, "sinks"), slopes = optional(slopes_, "alibi_slopes"),
        lse = optional(lse_, "lse", true), q_offsets(q_offsets_, "q_offsets"),
        kv_offsets(kv_offsets_, "kv_offsets"), kv_lens = optional(kv_lens_, "kv_lens");
    const uint32_t kind = slopes ? alibi_kind(alibi) : ATTN_ALIBI_NONE;
    const Packed call = {q,          k,       v,     out,    sinks,   slopes, lse, q_offsets,
                         kv_offsets, kv_lens, max_q, max_kv, options, scale,  kind};
    call.run(wanted, given_stream ? *given_stream : q.stream());
}

nb::object torch_varlen_attention(nb::handle q_, nb::handle k_, nb::handle v_, nb::handle q_offsets_,
                                  nb::handle kv_offsets_, int64_t max_q, int64_t max_kv, bool causal,
                                  std::optional<float> scale, int window_left, int window_right,
                                  float softcap, nb::handle sinks_, nb::handle slopes_)
{
    const Torch *torch = Torch::find();
    if (torch == nullptr || !torch->is_plain(q_) || !torch->is_plain(k_) || !torch->is_plain(v_) ||
        torch->is_watched() || torch->wants_gradient({q_, k_, v_, sinks_, slopes_}))
        return nb::none();
    const Array q(q_, "q"), k(k_, "k"), v(v_, "v");
    if (q.rank() != 3 || v.rank() != 3 || !q.is_on(HOST)) // a device needs lengths, too
        return nb::none();
    const Array q_offsets(q_offsets_, "q_offsets"), kv_offsets(kv_offsets_, "kv_offsets");
    const int64_t sizes[] = {q.size(0), q.size(1), v.size(2)};
    nb::object made = torch->empty(q_, q, sizes, {sizes[1] * sizes[2], sizes[2], 1});
    const Array out(made, "out", true), sinks = optional(sinks_, "sinks"),
                                        slopes = optional(slopes_, "alibi_slopes"), none;
    const Options options = {causal, false, window(window_left), window(window_right), softcap};
    const Packed call = {q,      k,      v,         out,        sinks,
                         slopes, none,   q_offsets, kv_offsets, none,
                         max_q,  max_kv, options,   scale,      ATTN_ALIBI_DISTANCE};
    call.run(std::nullopt, q.stream());
    return made;
}

// Name, device and kernels of every plan that calls have made.
nb::list plans()
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

} // namespace

void bind_attention(nb::module_ &module)
{
    using nb::arg;
    module.def("attention", attention, arg("q"), arg("k"), arg("v"), arg("out").none(), nb::kw_only(),
               arg("causal") = false, arg("align_start") = false, arg("scale") = nb::none(),
               arg("window_left") = nb::none(), arg("window_right") = nb::none(), arg("softcap") = 0.0f,
               arg("sinks") = nb::none(), arg("mask") = nb::none(), arg("alibi_slopes") = nb::none(),
               arg("alibi") = "key", arg("kv_lens") = nb::none(), arg("lse") = nb::none(),
               arg("backend") = nb::none(), arg("stream") = nb::none(),
               "q [batch, heads, n, dim] over k and v [batch, kv_heads, m, dim] to out [batch, heads, n, "
               "dim_vo], which is "
               "written and returned; None: a new one of q's library. kv_lens is i32 [batch] in host memory: "
               "keys of each sequence that count. Plans are "
               "kept by shape. Without stream it is the one on which the library of q works now.");
    module.def(
        "torch_attention", torch_attention, arg("q"), arg("k"), arg("v"), arg("any_heads"),
        arg("mask").none(), arg("causal"), arg("align_start"), arg("scale").none(), arg("window_left") = -1,
        arg("window_right") = -1, arg("softcap") = 0.0f, arg("sinks") = nb::none(),
        arg("alibi_slopes") = nb::none(), arg("kv_lens") = nb::none(),
        "attention() of plain tensors of torch to a new one, laid out as libattn.torch says. None, and "
        "nothing is done, "
        "if the call needs more: tracers, modes and autocast, gradients, other dimensions than four, "
        "and heads that "
        "differ without any_heads.");
    module.def("varlen_attention", varlen_attention, arg("q"), arg("k"), arg("v"), arg("out"),
               arg("q_offsets"), arg("kv_offsets"), arg("kv_lens").none(), arg("max_q"), arg("max_kv"),
               nb::kw_only(), arg("causal") = false, arg("align_start") = false, arg("scale") = nb::none(),
               arg("window_left") = nb::none(), arg("window_right") = nb::none(), arg("softcap") = 0.0f,
               arg("sinks") = nb::none(), arg("alibi_slopes") = nb::none(), arg("alibi") = "key",
               arg("lse") = nb::none(), arg("backend") = nb::none(), arg("stream") = nb::none(),
               "Sequences one behind the other: q [tokens, heads, dim], k and v [keys, kv_heads, dim], out "
               "[tokens, heads, "
               "dim_vo], which is written. q_offsets and kv_offsets are i32 [n + 1], kv_lens i32 [n], on "
               "their device; without "
               "kv_lens (on a CPU) a sequence has all keys up to the next one.");
    module.def(
        "torch_varlen_attention", torch_varlen_attention, arg("q"), arg("k"), arg("v"), arg("q_offsets"),
        arg("kv_offsets"), arg("max_q"), arg("max_kv"), arg("causal"), arg("scale").none(),
        arg("window_left"), arg("window_right"), arg("softcap"), arg("sinks").none(),
        arg("alibi_slopes").none(),
        "varlen_attention() of plain tensors of torch in host memory to a new one; alibi is 'distance'. "
        "None, and "
        "nothing is done, if the call needs more, as of torch_attention().");
    module.def("plans", plans,
               "Backend, device, problem and kernels of each plan that attention calls have made.");
    module.def(
        "forget_plans", [] { caches->clear(); }, "Frees plans and backends of attention calls.");
}
