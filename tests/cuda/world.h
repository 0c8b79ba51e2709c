/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A GPU's plugin on the fake driver: opening both, and what every test asks. */
#ifndef WORLD_H
#define WORLD_H

#include <attn/plugin.h>

#include "fake.h"

/* What tests have to know of a vendor. */
struct world_vendor {
    const char *plugin;
    uint32_t device_type, flavours;
    const char *library;               /* the option that names the driver */
    const char *pose, *arch;           /* what FAKE_HIP is to say, and the architecture that is told */
    const char *old_pose;              /* the same of a device that is not served */
    bool contexts;                     /* a caller may have some */
    uint64_t enter, leave;             /* calls of the driver around those of an entry */
    const char *entering[2];           /* those that enter, by name */
    const char *out_of_memory, *fault; /* errors */
    const char *copy, *batch;          /* to the device: one, and many */
};

struct world {
    const struct world_vendor *vendor;
    const struct fake *fake;
    const struct attn_plugin *plugin;
    struct attn_instance *instance;
    const struct attn_backend_table *table; /* flash-attn */
    struct attn_error err;
    const char *library;      /* the driver's */
    const char *tensor_cores; /* ATTN_FLASHINFER_TENSOR_CORES of the next instance, or NULL */
};

/* PLUGIN and FAKE are the two files. */
void world_init(struct world *world, const char *plugin, const char *fake);
/* A new instance on a machine; the fake has forgotten all. */
void world_begin(struct world *world, const struct fake_machine *machine);
/* Ends the instance. */
void world_end(struct world *world);
struct attn_device device_of(const struct world *world, int32_t ordinal);
/* Whether a call by this name enters a context or device. */
bool world_enters(const struct world *world, const char *name);
/* What the devices of the next instance say they are: ordinary ones, or such that are not served. */
void world_pose(const struct world *world, bool old);

/* Finds what a library exports; ends the test if it is not there. */
void *world_find(const char *path, const char *name);
/* A test line; the fake's offence and `text` are shown if it fails. */
void check(const struct world *world, bool good, const char *what);
/* Nothing is left, no offence was made, and the stack of contexts is as it was. */
void check_clean(const struct world *world, const char *what);
/* A test line that nothing is said with. */
void check_skip(const char *what, const char *why);
int check_end(void);

/* The whole of a test whose arguments are PLUGIN and FAKE. */
int world_main(int argc, char **argv, void (*const parts[])(struct world *), size_t count);

/* A causal decoder of one type over a table of pages, without anything special; no maxima. */
struct attn_problem world_problem(uint32_t dtype, uint32_t heads, uint32_t kv_heads, uint32_t head_dim);

/* A small attention problem with everything that it needs in device memory. */
struct job {
    struct attn_backend_impl *backend;
    struct attn_problem problem;
    struct attn_plan_impl *plan;
    struct attn_kv_impl *kv;
    struct attn_batch batch;
    struct attn_batch_host host;
    struct attn_tensors tensors;
    struct attn_span schedule;
    struct attn_scratch scratch;
    struct attn_buffer block; /* all of the device's memory */
    void *stream;
    bool wrong;  /* a result was not the right one */
    bool beside; /* backend and plan are another job's */
};

/* Each returns the first failure, after which job_finish still releases all that there is. */
int32_t job_init(struct job *job, struct world *world, int32_t ordinal, void *native_context);
/* The same with backend and plan of another job, which goes after this one. */
int32_t job_init_beside(struct job *job, struct world *world, const struct job *other);
int32_t job_run(struct job *job, struct world *world);
/* Whether out is what it has to be; reads it back. */
int32_t job_judge(struct job *job, struct world *world);
/* Fills out with rubbish. */
int32_t job_spoil(struct job *job, struct world *world);
void job_finish(struct job *job, struct world *world);

/* ---------------------------------------------------------------- use.c */

/* A run that is captured and launched twice, with a call of the host. */
int32_t use_graph(struct job *job, struct world *world);
/* Everything from opening to closing; *out_wrong: a result was wrong though all succeeded. */
int32_t use_all(struct world *world, void *native, bool *out_wrong);
/* One test line: every call of a use in turn fails with one result, and the use with `status`. */
void use_failing(struct world *world, const struct fake_machine *machine, gpu_result result, int32_t status,
                 const char *name);

#endif
