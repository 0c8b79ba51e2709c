// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over dense keys in one call; the schedule of the last lengths is kept with the plan.
#include "calls.h"
#include "torch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace
{

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
}
