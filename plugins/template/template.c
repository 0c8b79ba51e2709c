/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The smallest complete libattn plugin: decoder attention in f32, one query token and one key at a time. */
#include <attn/plugin-util.h>
#include <math.h>

ATTN_PLUGIN_NOTE("template", "your name", "0.1.0", "template/flash-attn", ATTN_CLASS_PORTABLE_CPU,
                 ATTN_CPU_BASELINE);

/* 1. What is served. The core turns the reasons into text and JSON. */
static int32_t query(struct attn_instance *instance, const struct attn_device *device,
                     const struct attn_problem *p, struct attn_query *out)
{
    (void)instance;
    attn_util_refuse(out, device && device->type != ATTN_DEVICE_CPU, ATTN_REASON_DEVICE, "device", "cpu");
    attn_util_refuse(out, p->type != ATTN_DECODER, ATTN_REASON_ATTN_TYPE, "type", "decoder");
    attn_util_refuse(out, p->q_dtype != ATTN_F32, ATTN_REASON_DTYPE_Q, "q", "f32");
    attn_util_refuse(out, p->k_dtype != ATTN_F32, ATTN_REASON_DTYPE_K, "k", "f32");
    attn_util_refuse(out, p->v_dtype != ATTN_F32, ATTN_REASON_DTYPE_V, "v", "f32");
    attn_util_refuse(out, p->out_dtype != ATTN_F32, ATTN_REASON_DTYPE_OUT, "out", "f32");
    attn_util_refuse(out, p->addressing == ATTN_CSR, ATTN_REASON_ADDRESSING, "addr", "dense or table");
    attn_util_refuse_extras(out, p);
    attn_util_answer(out, "attention_f32_plain", "always", ATTN_NUMERICS_P_F16, 100);
    attn_util_speed(out, ATTN_SPEED_GENERIC);
    return ATTN_OK;
}

static int32_t axes(struct attn_instance *instance, const struct attn_axis **out, uint32_t *count)
{
    static const char *const f32[] = {"f32"}, *const addr[] = {"dense", "table"}, *const type[] = {"decoder"};
    static const struct attn_axis list[] = {
        {"type", type, 1, 0, 0, 0, 0},
        {"q", f32, 1, 0, 0, 0, 0},
        {"k", f32, 1, 0, 0, 0, 0},
        {"v", f32, 1, 0, 0, 0, 0},
        {"addr", addr, 2, 0, 0, 0, 0},
        {"head_dim", NULL, 0, 0, 1, 65536, 1},
        {"block", NULL, 0, 0, 1, 1048576, 1},
    };
    (void)instance;
    *out = list;
    *count = sizeof list / sizeof *list;
    return ATTN_OK;
}

/* 2. The cache. */
static int32_t kv_shape(struct attn_backend_impl *backend, const struct attn_problem *problem, uint32_t pages,
                        struct attn_kv_shape *out, struct attn_error *err)
{
    (void)backend;
    return attn_util_shape(problem, pages, out, err);
}
static int32_t kv_write(struct attn_backend_impl *backend, const struct attn_kv_write_args *w,
                        const struct attn_kv_impl *kv_impl, const struct attn_kv_desc *desc, void *stream,
                        struct attn_error *err)
{
    const struct attn_kv_desc *d = attn_util_kv(kv_impl, desc);
    (void)backend;
    if (w->k_dtype != ATTN_F32 || w->v_dtype != ATTN_F32 || d->k_dtype != ATTN_F32 || d->v_dtype != ATTN_F32)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "k_dtype", "only f32 is written");
    if (!w->slot_mapping.data && w->addressing == ATTN_CSR)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "addressing", "give a slot mapping");
    int64_t token;
    for (uint32_t i = 0; i < w->num_tokens; i++)
        if (attn_util_place(w, d->block, i, &token) >= (int64_t)d->pages)
            return attn_util_fail(
                err, ATTN_E_INVALID, "slot_mapping",
                "a slot lies behind the last page; slots below pages times block are accepted");
    for (uint32_t n, i = attn_util_member(stream, &n); i < w->num_tokens; i += n) {
        const int64_t page = attn_util_place(w, d->block, i, &token);
        for (uint32_t h = 0; page >= 0 && h < d->kv_heads; h++) {
            memcpy(attn_util_key(d, page, token, h), attn_util_element(&w->k_new, i, h), 4u * d->head_dim);
            memcpy(attn_util_value(d, page, token, h), attn_util_element(&w->v_new, i, h),
                   4u * d->head_dim_vo);
        }
    }
    return attn_util_join(stream);
}

/* 3. A run. One query token and head over keys [0, end): row max m, row sum z, weighted values in out. */
static float row(const struct attn_problem *p, const struct attn_batch *batch, const struct attn_kv_desc *d,
                 uint32_t seq, uint32_t g, int64_t end, const float *q, float scale, float *out)
{
    float m = -INFINITY;
    double z = 0;
    memset(out, 0, sizeof *out * p->head_dim_vo);
    for (int64_t j = 0, token; j < end; j++) {
        const int64_t page = attn_util_locate(batch, p->addressing, d->block, seq, j, &token);
        if (page < 0)
            continue; /* an invalid block: not a key */
        const float *k = (const float *)(void *)attn_util_key(d, page, token, g);
        const float *v = (const float *)(void *)attn_util_value(d, page, token, g);
        double dot = 0;
        for (uint32_t c = 0; c < p->head_dim; c++)
            dot += (double)q[c] * (double)k[c];
        const float s = (float)(dot * (double)scale), old = s > m ? expf(m - s) : 1;
        m = s > m ? s : m;
        const float weight = expf(s - m);
        z = z * (double)old + (double)weight;
        for (uint32_t c = 0; c < p->head_dim_vo; c++)
            out[c] = out[c] * old + weight * v[c];
    }
    for (uint32_t c = 0; c < p->head_dim_vo && z != 0; c++)
        out[c] = (float)((double)out[c] / z);
    return z != 0 ? m + (float)log(z) : -INFINITY;
}

static int32_t run(const struct attn_plan_impl *impl, const struct attn_batch *batch,
                   const struct attn_tensors *t, const struct attn_kv_impl *kv_impl,
                   const struct attn_kv_desc *desc, const struct attn_span *schedule,
                   const struct attn_scratch *scratch, void *stream, struct attn_error *err)
{
    const struct attn_problem *p = attn_util_problem(impl);
    const int32_t *q = (const int32_t *)(void *)attn_util_at(&batch->q_offsets);
    const int32_t *lens = (const int32_t *)(void *)attn_util_at(&batch->kv_lens);
    (void)schedule, (void)scratch, (void)err;
    uint32_t members, member = attn_util_member(stream, &members); /* heads are dealt out */
    for (uint32_t s = 0; s < batch->seqs; s++)
        for (int32_t i = q[s]; i < q[s + 1]; i++) {
            int64_t end = p->align == ATTN_ALIGN_START ? i - q[s] + 1 : i + 1 + (int64_t)lens[s] - q[s + 1];
            if (p->causal != ATTN_CAUSAL_YES || end > lens[s])
                end = lens[s];
            for (uint32_t h = member; h < p->heads; h += members) {
                const float *query_row = (const float *)(void *)attn_util_element(&t->q, i, h);
                float *out = (float *)(void *)attn_util_element(&t->out, i, h);
                const float lse = row(p, batch, attn_util_kv(kv_impl, desc), s, h / (p->heads / p->kv_heads),
                                      end, query_row, t->softmax_scale, out);
                if (p->lse)
                    memcpy(attn_util_element(&t->lse, i, h), &lse, sizeof lse);
            }
        }
    return attn_util_join(stream);
}

/* 4. The tables and the entry. */
static const struct attn_plan_table plan = {sizeof plan,
                                            0,
                                            attn_util_plan_create,
                                            attn_util_plan_sizes,
                                            attn_util_plan_prepare,
                                            run,
                                            attn_util_plan_destroy,
                                            NULL,
                                            NULL};
static const struct attn_kv_table kv = {.struct_size = sizeof kv,
                                        .shape = kv_shape,
                                        .create = attn_util_kv_create,
                                        .destroy = attn_util_kv_destroy,
                                        .write = kv_write};
static const struct attn_memory_table memory = {
    .struct_size = sizeof memory, .alloc = attn_util_alloc, .free = attn_util_free, .copy = attn_util_copy};
static const struct attn_backend_table backend = {
    sizeof backend, ATTN_CLASS_PORTABLE_CPU, "template/flash-attn", &plan, &kv,  NULL, &memory, query,
    axes,           attn_util_open,          attn_util_close,       NULL,  NULL, NULL, NULL};

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *count, struct attn_error *err)
{
    static const struct attn_device_info cpu = {.struct_size = sizeof cpu,
                                                .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                .device = {.type = ATTN_DEVICE_CPU},
                                                .units = 1,
                                                .name = "any CPU",
                                                .arch = "C"};
    (void)instance, (void)err;
    if (capacity > 0)
        *out = cpu;
    *count = 1;
    return ATTN_OK;
}
static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&backend};
    (void)instance, (void)err;
    *out = list;
    *count = 1;
    return ATTN_OK;
}
int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    static const struct attn_plugin plugin = {.struct_size = sizeof plugin,
                                              .abi_major = ATTN_ABI_MAJOR,
                                              .abi_minor = ATTN_ABI_MINOR,
                                              ATTN_PLUGIN_SIZES,
                                              .name = "template",
                                              .vendor = "your name",
                                              .version = "0.1.0",
                                              .get_devices = get_devices,
                                              .get_backends = get_backends,
                                              .finish = attn_util_finish};
    (void)host, (void)err;
    *out = &plugin;
    return ATTN_OK;
}
