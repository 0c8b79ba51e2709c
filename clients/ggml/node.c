/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* From a node of ggml to a problem of libattn and to the tensors of a run. */
#include "client.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t dtype_of(enum ggml_type type)
{
    switch (type) {
    case GGML_TYPE_F32:
        return ATTN_F32;
    case GGML_TYPE_F16:
        return ATTN_F16;
    case GGML_TYPE_BF16:
        return ATTN_BF16;
    case GGML_TYPE_Q8_0:
        return ATTN_Q8_0;
    case GGML_TYPE_Q4_0:
        return ATTN_Q4_0;
    case GGML_TYPE_Q4_1:
        return ATTN_Q4_1;
    case GGML_TYPE_Q5_0:
        return ATTN_Q5_0;
    case GGML_TYPE_Q5_1:
        return ATTN_Q5_1;
    case GGML_TYPE_IQ4_NL:
        return ATTN_IQ4_NL;
    default:
        return 0;
    }
}

static bool contiguous_rows(const struct ggml_tensor *tensor)
{
    return tensor->nb[0] == ggml_type_size(tensor->type);
}

/* Whether values are the first columns of the keys. Where a tensor has no memory yet, the views say it. */
static bool holds_values(const struct ggml_tensor *k, const struct ggml_tensor *v)
{
    const struct ggml_tensor *key_memory = k->view_src != NULL ? k->view_src : k;
    const struct ggml_tensor *value_memory = v->view_src != NULL ? v->view_src : v;
    return key_memory == value_memory && k->view_offs == v->view_offs && k->type == v->type &&
           k->nb[1] == v->nb[1] && (k->ne[2] == 1 || k->nb[2] == v->nb[2]) && k->nb[3] == v->nb[3] &&
           v->ne[0] <= k->ne[0];
}

static const char *refuse(char *text, size_t size, const char *what, const char *value)
{
    snprintf(text, size, "%s %s", what, value);
    return text;
}

/* Why the types and shapes of q, k and v have no words, or NULL. */
static const char *judge_inputs(const struct node *node, char *text, size_t size)
{
    const struct ggml_tensor *q = node->q, *k = node->k, *v = node->v;
    if (q->type != GGML_TYPE_F32)
        return refuse(text, size, "queries of type", ggml_type_name(q->type));
    if (dtype_of(k->type) == 0 || dtype_of(v->type) == 0)
        return refuse(text, size, "keys or values of type",
                      ggml_type_name(dtype_of(k->type) == 0 ? k->type : v->type));
    if (!contiguous_rows(q) || !contiguous_rows(k) || !contiguous_rows(v))
        return "rows that are not contiguous";
    if (k->ne[2] != v->ne[2] || k->ne[2] == 0 || q->ne[2] % k->ne[2] != 0)
        return "heads that are no multiple of those of keys and values";
    if (k->ne[3] != q->ne[3] || v->ne[3] != q->ne[3])
        return "keys that several sequences share";
    if (q->ne[1] > INT32_MAX || k->ne[1] > INT32_MAX || q->ne[1] * q->ne[3] > INT32_MAX)
        return "more than 2^31 tokens";
    return isfinite(node->scale) && node->scale > 0 ? NULL : "a scale that is not positive";
}

/* The same for masks and sinks. */
static const char *judge_extras(const struct node *node)
{
    const struct ggml_tensor *mask = node->mask, *sinks = node->sinks;
    if (mask != NULL) {
        if (mask->type != GGML_TYPE_F16 || !contiguous_rows(mask))
            return "a mask that is not rows of f16";
        if (mask->ne[2] != 1 && mask->ne[2] != node->q->ne[2])
            return "a mask whose heads repeat";
        if (mask->ne[3] != 1 && mask->ne[3] != node->q->ne[3])
            return "a mask whose sequences repeat";
    }
    return sinks != NULL && sinks->type != GGML_TYPE_F32 ? "sinks that are not f32" : NULL;
}

const char *node_read(const struct ggml_tensor *op, struct node *out, char *text, size_t size)
{
    float softcap;
    *out = (struct node){.q = op->src[0],
                         .k = op->src[1],
                         .v = op->src[2],
                         .mask = op->src[3],
                         .sinks = op->src[4],
                         .out = op};
    memcpy(&out->scale, &op->op_params[0], sizeof out->scale);
    memcpy(&out->max_bias, &op->op_params[1], sizeof out->max_bias);
    memcpy(&softcap, &op->op_params[2], sizeof softcap);
    const char *reason = judge_inputs(out, text, size);
    if (reason == NULL)
        reason = judge_extras(out);
    if (reason != NULL)
        return reason;
    out->tokens = (uint32_t)out->q->ne[1];
    out->keys = (uint32_t)out->k->ne[1];
    out->seqs = (uint32_t)out->q->ne[3];
    out->runs = out->seqs == 1 || out->q->nb[3] == out->q->nb[1] * out->tokens ? 1 : out->seqs;
    out->head_runs = 1;

    struct attn_problem *problem = &out->problem;
    ATTN_INIT(problem);
    problem->q_dtype = problem->out_dtype = ATTN_F32;
    problem->k_dtype = dtype_of(out->k->type);
    problem->v_dtype = dtype_of(out->v->type);
    problem->heads = (uint32_t)out->q->ne[2];
    problem->kv_heads = (uint32_t)out->k->ne[2];
    problem->head_dim = (uint32_t)out->q->ne[0];
    problem->head_dim_vo = (uint32_t)out->v->ne[0];
    problem->addressing = ATTN_DENSE;
    problem->causal = ATTN_CAUSAL_NO; /* what is hidden, the mask hides */
    problem->softcap = softcap;
    problem->mla = out->k->ne[2] == 1 && holds_values(out->k, out->v);
    problem->sinks = out->sinks != NULL;
    if (out->mask != NULL) {
        problem->mask = ATTN_MASK_F16;
        problem->span = ATTN_SPAN_FULL;
        problem->alibi = out->max_bias > 0 ? ATTN_ALIBI_MASK : ATTN_ALIBI_NONE;
    }
    return NULL;
}

bool node_split(struct node *node)
{
    struct attn_problem *problem = &node->problem;
    if (problem->kv_heads == 1 || !holds_values(node->k, node->v))
        return false;
    node->head_runs = problem->kv_heads;
    problem->mla = 1;
    problem->heads /= problem->kv_heads;
    problem->kv_heads = 1;
    return true;
}

void node_kv(const struct node *node, uint32_t run, struct attn_kv_desc *out)
{
    const struct ggml_tensor *k = node->k, *v = node->v;
    const uint32_t first = run / node->head_runs, head = run % node->head_runs;
    ATTN_INIT(out);
    out->k_dtype = node->problem.k_dtype;
    out->pages = node->seqs / node->runs;
    out->block = node->keys;
    out->kv_heads = node->problem.kv_heads;
    out->head_dim = node->problem.head_dim;
    out->head_dim_vo = node->problem.head_dim_vo;
    out->k.data = k->data;
    out->k.byte_offset = first * k->nb[3] + head * k->nb[2];
    out->k_token_stride = (int64_t)k->nb[1];
    out->k_head_stride = (int64_t)k->nb[2];
    out->k_page_stride = (int64_t)k->nb[3];
    if (node->problem.mla != 0)
        return;
    out->v_dtype = node->problem.v_dtype;
    out->v.data = v->data;
    out->v.byte_offset = first * v->nb[3];
    out->v_token_stride = (int64_t)v->nb[1];
    out->v_head_stride = (int64_t)v->nb[2];
    out->v_page_stride = (int64_t)v->nb[3];
}

void node_queries(const struct node *node, struct attn_kv_desc *out)
{
    const struct ggml_tensor *q = node->q;
    ATTN_INIT(out);
    out->k_dtype = out->v_dtype = ATTN_F32;
    out->pages = node->seqs;
    out->block = node->tokens;
    out->kv_heads = (uint32_t)q->ne[2];
    out->head_dim = node->problem.head_dim;
    out->k.data = out->v.data = q->data;
    out->k_token_stride = out->v_token_stride = (int64_t)q->nb[1];
    out->k_head_stride = out->v_head_stride = (int64_t)q->nb[2];
    out->k_page_stride = out->v_page_stride = (int64_t)q->nb[3];
}

void node_slopes(const struct node *node, float *slopes)
{
    const uint32_t heads = (uint32_t)node->q->ne[2];
    const uint32_t power = 1U << (uint32_t)floor(log2((double)heads)); /* of 2, at most `heads` */
    const float base = powf(2.0F, -node->max_bias / (float)power),
                between = powf(2.0F, -node->max_bias / 2.0F / (float)power);
    for (uint32_t h = 0; h < heads; h++)
        slopes[h] = h < power ? powf(base, (float)(h + 1)) : powf(between, (float)(2 * (h - power) + 1));
}

void node_tensors(const struct node *node, uint32_t run, struct attn_tensors *out)
{
    const struct ggml_tensor *mask = node->mask;
    const uint32_t first = run / node->head_runs, head = run % node->head_runs * node->problem.heads;
    ATTN_INIT(out);
    out->softmax_scale = node->scale;
    out->q.buffer.data = node->q->data;
    out->q.buffer.byte_offset = first * node->q->nb[3] + head * node->q->nb[2];
    out->q.token_stride = (int64_t)node->q->nb[1];
    out->q.head_stride = (int64_t)node->q->nb[2];
    out->out.buffer.data = node->out->data; /* [dim, head, token, sequence] */
    out->out.buffer.byte_offset = first * node->out->nb[3] + head * node->out->nb[1];
    out->out.token_stride = (int64_t)node->out->nb[2];
    out->out.head_stride = (int64_t)node->out->nb[1];
    if (node->sinks != NULL) {
        out->sinks.data = node->sinks->data;
        out->sinks.byte_offset = head * sizeof(float);
        out->sinks_dtype = ATTN_F32;
    }
    if (mask == NULL)
        return;
    out->mask.data = mask->data;
    out->mask_row_stride = (int64_t)mask->nb[1];
    out->mask_head_stride = mask->ne[2] > 1 ? (int64_t)mask->nb[2] : 0;
    out->mask_seq_stride = mask->ne[3] > 1 ? (int64_t)mask->nb[3] : 0;
    out->mask.byte_offset = (uint64_t)(first * out->mask_seq_stride + head * out->mask_head_stride);
}
