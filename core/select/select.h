/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the files of the selection share: items of the wanted list, candidates, the decision under way. */
#ifndef ATTN_SELECT_H
#define ATTN_SELECT_H

#include "core.h"

#define ATTN__NAME_SIZE   160 /* of a backend name: what a note can hold */
#define ATTN__CLASSES     4
#define ATTN__ITEM_BEHIND UINT32_MAX /* item number of candidates that no item of the wanted list asked */

struct attn__generic;

/* One candidate. Its address does not change once it is in the decision. */
struct attn__candidate {
    struct attn_candidate info;
    char name[ATTN__NAME_SIZE];
    char device_name[32];
    struct attn__backend *entry; /* NULL if the plugin is not open */
    struct attn_device device;   /* valid if info.device is not NULL */
    uint32_t item;               /* number of the item of the wanted list that asked it */
    uint32_t sequence;
    bool excluded;         /* left out because the caller asked for another device; not a refusal */
    uint32_t refused_from; /* index of the first reason of a problem that is not served; UINT32_MAX: all are
                              served */
    struct attn_reason *reasons;
    struct attn_kernel_info *kernels;
    uint32_t reason_capacity;
    uint32_t kernel_capacity;
    struct attn__generic *generic; /* problems that a generic kernel serves, see generic.c */
    uint32_t generic_count;
};

struct attn_decision {
    struct attn_decision_info info;
    struct attn_context *context; /* held: entries live in it */
    struct attn__candidate **candidates;
    uint32_t count;
    uint32_t capacity;
    struct attn__candidate *winner;
    char *requested;
    char text[768];
    uint32_t finding;    /* offset in text of the outcome, which follows what was asked */
    bool none;           /* the item `none` of the list was reached */
    bool overrules;      /* the call's list overrules ATTN_BACKEND */
    uint32_t item_count; /* of the wanted list */
    uint32_t won;        /* number of the item that won */
};

/* One backend name of one note. */
struct attn__slot {
    struct attn__plugin *plugin;
    char name[ATTN__NAME_SIZE];
    uint32_t reason; /* NOT_REQUESTED, DISABLED_BY_USER or 0 */
    bool done;       /* listed as a candidate */
};

struct attn__selection {
    struct attn_context *context;
    struct attn_decision *decision;
    struct attn_problem *problems;
    uint32_t problem_count;
    struct attn_select_options options;
    const char *split;                 /* why the problems are not those of the whole model, or NULL */
    uint32_t strict;                   /* 1: a fallback is an error; 2: no generic kernel serves either */
    char device_type[32];              /* the filter: what a plugin calls its devices; "" = any */
    int32_t ordinal;                   /* -1 = any */
    uint32_t order[ATTN__CLASSES + 1]; /* place of each class in the order of asking */
    struct attn__plugin **plugins;
    uint32_t plugin_count;
    struct attn__slot *slots;
    uint32_t slot_count;
};

/* ---------------------------------------------------------------- select.c */

/*
 * attn_select with checked handles. `split`, or NULL, is why these are not all problems of the model: it
 * becomes a part of the decision's text.
 */
int32_t attn__select(struct attn_context *context, const struct attn_problem *problems, uint32_t count,
                     const struct attn_select_options *options, const char *split, struct attn_decision **out,
                     struct attn_error *err);

/* ---------------------------------------------------------------- select-ask.c */

/* Fills plugins and slots. */
int32_t attn__selection_list(struct attn__selection *selection, struct attn_error *err);
/* Fills the decision with candidates and picks the winner. */
int32_t attn__selection_ask(struct attn__selection *selection, struct attn_error *err);

/* ---------------------------------------------------------------- wanted.c */

/* Copies the next item of a comma list, trimmed; false at the end. *cursor is the list at first. */
bool attn__item_next(const char **cursor, char *item, size_t size);
/* Whether an item (auto, vendor/flavour, vendor, flavour) matches a name. */
bool attn__item_matches(const char *item, const char *name);
/* Copies the next name of a note's list; false at the end. */
bool attn__note_next(const char **cursor, char *name, size_t size);
/* Writes why no plugin has the name of an item: the nearest known name, or that there is no such plugin. */
void attn__item_explain(const char *item, struct attn__plugin *const *plugins, uint32_t count,
                        bool from_environment, char *text, size_t size);

/* ---------------------------------------------------------------- candidate.c */

/* Appends a candidate to the decision; NULL without memory. */
struct attn__candidate *attn__candidate_add(struct attn_decision *decision, const char *name, uint32_t item,
                                            uint32_t device_class);
void attn__candidate_destroy(struct attn__candidate *candidate);
void attn__candidate_set_device(struct attn__candidate *candidate, const struct attn_device *device);
/* Appends a reason; with an empty format, the text of the code. False without memory. */
bool attn__candidate_refuse(struct attn__candidate *candidate, uint32_t code, const char *field,
                            const char *got, const char *wanted, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Asks its backend about all problems, on its device if it has one. False without memory. */
bool attn__candidate_ask(struct attn__candidate *candidate, const struct attn_problem *problems,
                         uint32_t count);
/* The order of preference: class, cost rank, device ordinal, name. */
int attn__candidate_compare(const struct attn__candidate *a, const struct attn__candidate *b);
/* Code of the first reason, 0 if it has none. */
uint32_t attn__candidate_cause(const struct attn__candidate *candidate);

/* An open plugin's backend by name, or NULL. */
struct attn__backend *attn__plugin_find(const struct attn__plugin *plugin, const char *name);
/* Reason and text of a plugin's record, read under the lock. */
uint32_t attn__plugin_reason(struct attn__plugin *plugin, char *text, size_t size);

/* Copies as much as fits. */
void attn__copy_text(char *target, size_t size, const char *source);

/* ---------------------------------------------------------------- generic.c */

/* Keeps which generic kernel serves a problem by an answer, if one does. False without memory. */
bool attn__candidate_note_generic(struct attn__candidate *candidate, uint32_t problem,
                                  const struct attn_query *query);
/* Refuses a candidate that would serve a problem by a generic kernel. False without memory. */
bool attn__candidate_refuse_generic(struct attn__candidate *candidate);
/* Warns once of each problem that the winner serves by a generic kernel. */
void attn__selection_warn_generic(const struct attn__selection *selection);

/* ---------------------------------------------------------------- decision.c */

/* Sorts, picks requested, effective, fallback and text, and logs. The status of attn_select. */
int32_t attn__selection_conclude(const struct attn__selection *selection, struct attn_error *err);

/* ---------------------------------------------------------------- line.c */

/* A text that grows, and ends where its array does. */
struct attn__line {
    char *text;
    size_t size;
    size_t used;
};

void attn__line_append(struct attn__line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
