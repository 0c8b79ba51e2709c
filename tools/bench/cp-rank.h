/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* One rank of attn-bench cp. */
#ifndef CP_RANK_H
#define CP_RANK_H

#include <pthread.h>

#include "attn/parallel.h"
#include "bench.h"
#include "workload.h"

/* Longer than anything that is measured here. */
#define LIMIT_NS UINT64_C(120000000000)

struct transport_id;

/* What all ranks measure. */
struct cp_group {
    struct bench *bench;
    struct attn_context *context;
    const struct bench_case *whole;
    const char *transport;
    const struct transport_id *id; /* of NCCL */
    uint32_t size, threads, reps, layers;
    bool tokens;   /* query tokens are spread over the ranks, not heads */
    uint32_t pass; /* enum attn_cp_pass */
};

/* What is measured of a rank: attention over its keys, the same over those of all ranks, and, of NCCL, the
 * collectives of a decode step alone. */
enum cp_work { CP_PART, CP_RANKS, CP_GATHER, CP_EXCHANGE, CP_WORKS };

/* One rank; its times, of a layer, are those of rank 0 alone. */
struct cp_rank {
    struct cp_group *group;
    struct attn_collectives meeting; /* ranks begin together by it; on the host */
    struct attn_collectives net;     /* attention is exchanged by it */
    struct transport *transport;     /* of NCCL */
    pthread_t thread;
    struct attn_backend *backend;
    struct bench_case part; /* its keys */
    struct workload workload;
    struct attn_cp *cp;
    struct attn_cp_run_args args;
    struct attn_tensors tensors;
    struct attn_graph *graph;  /* of all layers, where the device is not the host */
    uint32_t pass;             /* enum attn_cp_pass of the step */
    struct attn_buffer blocks; /* that collectives alone send, and get behind them */
    uint64_t bytes[CP_WORKS];  /* of a block; 0: not measured */
    double *seconds[CP_WORKS];
    int32_t status;
    struct attn_error err;
};

/* Thread of a rank whose group and meeting are given. */
void *cp_rank_thread(void *rank);
void cp_rank_finish(struct cp_rank *rank);

/* One backend with all keys, on as many threads as each of the ranks has. */
int32_t cp_measure_alone(struct cp_group *group, double *seconds, struct attn_error *err);

#endif
