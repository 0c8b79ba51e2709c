/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* libattn-own.so: a device type of its own, a backend with all of its own, and one with borrowed tables. */
#include <attn/serving.h>
#include <pthread.h>

#include "own.h"

ATTN_PLUGIN_NOTE("own", "libattn tests", "1.0", "own/mystyle,own/borrowed", ATTN_CLASS_PORTABLE_CPU,
                 ATTN_CPU_BASELINE);

/* begin tables */
static const struct attn_backend_table mystyle = {.struct_size = sizeof mystyle,
                                                  .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                  .name = "own/mystyle",
                                                  .plan = &own_plan,
                                                  .kv = &own_kv,
                                                  .memory = &own_memory,
                                                  .query = own_query,
                                                  .axes = own_axes,
                                                  .open = attn_util_open,
                                                  .close = attn_util_close,
                                                  .builder = &own_builder,
                                                  .state = &own_state,
                                                  .layer = &own_layer};
/* end tables */

/* begin borrowed */
static struct attn_builder_table plain_builder; /* attn_serving_builder, but for build */

static int32_t build_plain(struct attn_builder_impl *builder, const struct attn_builder_build_args *args,
                           void *stream, struct attn_metadata_impl **out, struct attn_error *err)
{
    if (args->graph == 1)
        return attn_util_fail(err, ATTN_E_UNSUPPORTED, "graph", "own/borrowed captures nothing; 0 is served");
    return attn_serving_builder.build(builder, args, stream, out, err);
}

/* Called once, by the first call of the entry: tables do not change after it. */
static void copy_builder(void)
{
    plain_builder = attn_serving_builder;
    plain_builder.build = build_plain;
}

static const struct attn_backend_table borrowed = {.struct_size = sizeof borrowed,
                                                   .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                   .name = "own/borrowed",
                                                   .plan = &own_plan,
                                                   .kv = &own_kv,
                                                   .memory = &own_memory,
                                                   .query = own_query,
                                                   .axes = own_axes,
                                                   .open = attn_util_open,
                                                   .close = attn_util_close,
                                                   .builder = &plain_builder, /* or &attn_serving_builder */
                                                   .state = &attn_serving_state,
                                                   .layer = &attn_serving_layer};
/* end borrowed */

static int32_t get_devices(struct attn_instance *instance, struct attn_device_info *out, uint32_t capacity,
                           uint32_t *count, struct attn_error *err)
{
    static const struct attn_device_info shelf = {.struct_size = sizeof shelf,
                                                  .device_class = ATTN_CLASS_PORTABLE_CPU,
                                                  .device = {.type = OWN_DEVICE},
                                                  .units = 1,
                                                  .name = "a shelf in host memory",
                                                  .arch = "C"};

    (void)instance, (void)err;
    if (capacity > 0)
        *out = shelf;
    *count = 1;
    return ATTN_OK;
}

static int32_t get_backends(struct attn_instance *instance, const struct attn_backend_table *const **out,
                            uint32_t *count, struct attn_error *err)
{
    static const struct attn_backend_table *const list[] = {&mystyle, &borrowed};

    (void)instance, (void)err;
    *out = list;
    *count = 2;
    return ATTN_OK;
}

int32_t attn_plugin_entry_v1(const struct attn_host *host, const struct attn_plugin **out,
                             struct attn_error *err)
{
    static const struct attn_plugin plugin = {.struct_size = sizeof plugin,
                                              .abi_major = ATTN_ABI_MAJOR,
                                              .abi_minor = ATTN_ABI_MINOR,
                                              ATTN_PLUGIN_SIZES,
                                              .name = "own",
                                              .vendor = "libattn tests",
                                              .version = "1.0",
                                              .get_devices = get_devices,
                                              .get_backends = get_backends,
                                              .finish = attn_util_finish,
                                              .device_type = "shelf"};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)host, (void)err;
    pthread_once(&once, copy_builder);
    *out = &plugin;
    return ATTN_OK;
}
