// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention over sequences one behind the other, in one call.
#include "calls.h"
#include "torch.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

namespace
{

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

} // namespace

void bind_packed(nb::module_ &module)
{
    using nb::arg;
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
}
