/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the checks of attn-info doctor find. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include "info.h"

/* NOTE: nobody has to do anything, but a reader may want to know. MEND: exit code 1. */
enum level { OK, NOTE, MEND };

struct finding {
    enum level level;
    const char *check;
    char *text;
    char *remedy; /* NULL: none is needed */
};

struct doctor {
    const struct info *info;
    struct attn_report *report;
    struct finding *findings;
    unsigned count;
};

/* Keeps a finding; `remedy` may be NULL. */
void doctor_tell(struct doctor *doctor, enum level level, const char *check, const char *remedy,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Each tells at least one finding. */
void check_path(struct doctor *doctor);
void check_files(struct doctor *doctor);
void check_devices(struct doctor *doctor);
void check_probe(struct doctor *doctor);
void check_cache(struct doctor *doctor);
void check_variables(struct doctor *doctor);
/* Who serves a plain problem, and with which kernels. */
void check_selection(struct doctor *doctor);

#endif
