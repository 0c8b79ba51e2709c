/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-info explain says of cp=1: what ranks would move for a prefill whose query tokens are spread. */
#include "explain-ranks.h"

#include <inttypes.h>
#include <stdio.h>

#include "attn/parallel.h"
#include "output.h"

enum { SIZES = 8 };

/* The largest step of one sequence. */
struct spread {
    int32_t q_len, kv_len;
    struct attn_cp_prefill_info infos[SIZES];
};

/* 2 to 256 */
static uint32_t size_of(unsigned number)
{
    return 2u << number;
}

static bool estimate(const struct attn_problem *problem, struct spread *out)
{
    const uint32_t rows = problem->max_rows < problem->max_kv ? problem->max_rows : problem->max_kv;
    struct attn_cp_step step;

    if (problem->cp == 0 || rows == 0 || problem->max_kv > INT32_MAX)
        return false;
    ATTN_INIT(&step);
    out->q_len = (int32_t)rows;
    out->kv_len = (int32_t)problem->max_kv;
    step.seqs = 1;
    step.q_lens = &out->q_len;
    step.kv_lens = &out->kv_len;
    for (unsigned i = 0; i < SIZES; i++) {
        ATTN_INIT(&out->infos[i]);
        if (attn_cp_estimate(problem, size_of(i), problem->block, &step, &out->infos[i], NULL) != ATTN_OK)
            return false;
    }
    return true;
}

static const char *taken(const struct attn_cp_prefill_info *info)
{
    return info->pass == ATTN_CP_PASS_KEYS      ? "keys"
           : info->pass == ATTN_CP_PASS_QUERIES ? "queries"
                                                : "heads";
}

/* MB, or that it cannot be. */
static void print_bytes(uint64_t bytes)
{
    if (bytes > 0)
        fprintf(output_stream(), " %10.1f", (double)bytes * 1e-6);
    else
        fprintf(output_stream(), " %10s", "-");
}

static void print_row(uint32_t size, const struct attn_cp_prefill_info *info)
{
    fprintf(output_stream(), "  %5u", size);
    print_bytes(info->keys_bytes);
    print_bytes(info->queries_bytes);
    print_bytes(info->heads_bytes);
    fprintf(output_stream(), "  %s\n", taken(info));
}

void explain_ranks_print(const struct attn_problem *problem)
{
    struct spread spread;

    if (!estimate(problem, &spread))
        return;
    fprintf(output_stream(),
            "\nranks, with query tokens spread as keys are: %d of them on %d keys, MB that a\n"
            "rank receives a layer, and what is passed\n"
            "  RANKS       KEYS    QUERIES      HEADS  PASSED\n",
            spread.q_len, spread.kv_len);
    for (unsigned i = 0; i < SIZES; i++)
        print_row(size_of(i), &spread.infos[i]);
}

void explain_ranks_json(struct jsonout *json, const struct attn_problem *problem)
{
    struct spread spread;

    jsonout_array(json, "ranks");
    for (unsigned i = 0; estimate(problem, &spread) && i < SIZES; i++) {
        jsonout_object(json, NULL);
        jsonout_integer(json, "ranks", size_of(i));
        jsonout_integer(json, "keys_bytes", (int64_t)spread.infos[i].keys_bytes);
        jsonout_integer(json, "queries_bytes", (int64_t)spread.infos[i].queries_bytes);
        jsonout_integer(json, "heads_bytes", (int64_t)spread.infos[i].heads_bytes);
        jsonout_string(json, "passed", taken(&spread.infos[i]));
        jsonout_close(json);
    }
    jsonout_close(json);
}
