/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Names and texts of every number of the interface, from the .def files. */
#include "check.h"
#include "core.h"

#define STRING(x)  #x
#define VERSION(x) STRING(x)

const char *attn_version(void)
{
    return VERSION(LIBATTN_VERSION_MAJOR) "." VERSION(LIBATTN_VERSION_MINOR) "." VERSION(
        LIBATTN_VERSION_PATCH);
}

/* ---------------------------------------------------------------- statuses */

const char *attn_status_name(int32_t status)
{
    switch (status) {
#define ATTN_STATUS(name, value, text, advice)                                                               \
    case ATTN_##name:                                                                                        \
        return "ATTN_" #name;
#include "attn/status.def"
    default:
        return "ATTN_E_UNKNOWN";
    }
}

const char *attn_status_text(int32_t status)
{
    switch (status) {
#define ATTN_STATUS(name, value, text, advice)                                                               \
    case ATTN_##name:                                                                                        \
        return text;
#include "attn/status.def"
    default:
        return "a number that is no status of libattn";
    }
}

const char *attn_status_advice(int32_t status)
{
    switch (status) {
#define ATTN_STATUS(name, value, text, advice)                                                               \
    case ATTN_##name:                                                                                        \
        return advice;
#include "attn/status.def"
    default:
        return "report it to the vendor of the plugin that returned it";
    }
}

/* ---------------------------------------------------------------- reasons */

const char *attn_reason_name(uint32_t reason)
{
    switch (reason) {
    case ATTN_REASON_NONE:
        return "NONE";
#define ATTN_REASON(name, value, kind, text, advice)                                                         \
    case ATTN_REASON_##name:                                                                                 \
        return #name;
#include "attn/reason.def"
    default:
        return reason >= ATTN_REASON_PRIVATE ? "PRIVATE" : "UNKNOWN";
    }
}

const char *attn_reason_text(uint32_t reason)
{
    switch (reason) {
    case ATTN_REASON_NONE:
        return "";
#define ATTN_REASON(name, value, kind, text, advice)                                                         \
    case ATTN_REASON_##name:                                                                                 \
        return text;
#include "attn/reason.def"
    default:
        return reason >= ATTN_REASON_PRIVATE ? "a reason of the plugin's own" : "a number that is no reason";
    }
}

const char *attn_reason_advice(uint32_t reason)
{
    switch (reason) {
    case ATTN_REASON_NONE:
        return "";
#define ATTN_REASON(name, value, kind, text, advice)                                                         \
    case ATTN_REASON_##name:                                                                                 \
        return advice;
#include "attn/reason.def"
    default:
        return reason >= ATTN_REASON_PRIVATE ? "read the plugin's documentation"
                                             : "update libattn, or report it to the plugin's vendor";
    }
}

enum reason_kind { ABSENCE, REFUSAL, EXPLICIT, ADVICE };

int32_t attn_reason_is_absence(uint32_t reason)
{
    switch (reason) {
#define ATTN_REASON(name, value, kind, text, advice)                                                         \
    case ATTN_REASON_##name:                                                                                 \
        return kind == ABSENCE;
#include "attn/reason.def"
    default:
        return 0;
    }
}

int32_t attn_reason_is_explicit(uint32_t reason)
{
    return attn__reason_is_explicit(reason);
}

/* ---------------------------------------------------------------- small enumerations */

const char *attn_dtype_name(uint32_t dtype)
{
    const char *name = attn__dtype_name(dtype);
    return strcmp(name, "unknown") != 0 ? name : NULL;
}

uint32_t attn_dtype_size(uint32_t dtype)
{
    return attn_dtype_name(dtype) != NULL && attn_block_bytes(dtype) == 0 ? (dtype >> 8 & 0xff) / 8 : 0;
}

/* Entry number `index` of a list that counts from 1. */
static const char *listed(const char *const *names, uint32_t count, uint32_t index)
{
    return index >= 1 && index <= count ? names[index - 1] : "unknown";
}

const char *attn_stage_name(uint32_t stage)
{
    static const char *const names[] = {"found",  "trusted",    "note", "probed",
                                        "loaded", "negotiated", "ready"};
    return listed(names, sizeof names / sizeof names[0], stage);
}

const char *attn_backend_state_name(uint32_t state)
{
    static const char *const names[] = {"ready", "no-device", "not-asked", "refused"};
    return listed(names, sizeof names / sizeof names[0], state);
}

const char *attn_decided_by_name(uint32_t decided_by)
{
    static const char *const names[] = {"call", "environment", "automatic"};
    return listed(names, sizeof names / sizeof names[0], decided_by);
}
