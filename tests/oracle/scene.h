/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A small scene that tests of the oracle change as they need: one sequence over an f32 cache in pages. */
#ifndef SCENE_H
#define SCENE_H

#include "oracle.h"

enum { PAGES = 8, BLOCK = 4, DIM = 3, HEADS = 2, ROWS = 6, WIDTH = 4 };

struct scene {
    struct attn_problem problem;
    struct attn_batch batch;
    struct attn_tensors tensors;
    struct attn_kv_desc kv;
    int32_t q_offsets[2];
    int32_t kv_lens[1];
    int32_t table[WIDTH];
    float q[ROWS][HEADS][DIM];
    float k[PAGES][BLOCK][DIM]; /* one kv head */
    float v[PAGES][BLOCK][DIM];
    double out[ROWS][HEADS][DIM];
    double lse[ROWS][HEADS];
    uint32_t seen[ROWS][HEADS];
    double slope[ROWS][HEADS];
    double largest, largest_uncapped;
};

extern struct scene scene;

/* The vectors of key j. */
float *key(int j);
float *value(int j);

/* Fills the scene: causal, aligned at the end, no feature used. */
void start(int q_len, int kv_len);

/* Runs the oracle. */
void compute(void);

/* Results that were kept, to hold later ones against: equal, or equal but for rounding. */
extern double kept[ROWS][HEADS][DIM], kept_lse[ROWS][HEADS];
extern uint32_t kept_seen[ROWS][HEADS];
void keep(void);
void expect_kept(void);
void expect_near_kept(void);

/* Equal but for the rounding of doubles. */
bool near(double a, double b);

#endif
