/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info explain: the decision for one problem, candidate by candidate. */
#include <stdlib.h>
#include <string.h>

#include "explain-print.h"
#include "explain-ranks.h"
#include "info.h"

/* Whether a word of the problem string gives the element type of q, by that name or one of other projects. */
static bool gives_type(const char *word)
{
    static const struct {
        const char *name, *key;
    } aliases[] = {
        {"q", "q"},
#define ATTN_KEY_ALIAS(name, key, less) {#name, #key},
#include "select/alias.def"
    };
    size_t size = strcspn(word, "=");

    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].key, "q") == 0 && strlen(aliases[i].name) == size &&
            strncmp(aliases[i].name, word, size) == 0)
            return true;
    return false;
}

/* The arguments as one problem string; free it. A question needs no element type, a program does: without
 * one it is asked with the most common type, and said so. */
static char *problem_text(const struct info *info)
{
    char *text = need_copy("");
    bool typed = false;

    for (unsigned i = 0; i < info->arg_count; i++) {
        char *longer = need_format("%s%s%s", text, i > 0 ? " " : "", info->args[i]);
        typed = typed || gives_type(info->args[i]) || strstr(info->args[i], " q=") != NULL;
        free(text);
        text = longer;
    }
    if (typed)
        return text;
    char *longer = need_format("%s q=bf16", text);
    free(text);
    if (!info->common.json)
        complain("q is not given: asked with q=bf16");
    return longer;
}

/* The canonical string of a resolved problem; free it. */
static char *canonical(const struct attn_problem *problem)
{
    size_t size = 0;

    attn_problem_format(problem, NULL, 0, &size, NULL);
    char *text = need_memory(NULL, size + 1, 1);
    if (attn_problem_format(problem, text, size + 1, NULL, NULL) != ATTN_OK)
        text[0] = '\0';
    return text;
}

static void json_candidate(struct jsonout *json, const struct attn_candidate *candidate)
{
    bool served = candidate->accepted != 0;

    jsonout_object(json, NULL);
    jsonout_string(json, "name", candidate->name);
    jsonout_string(json, "device", candidate->device);
    jsonout_bool(json, "accepted", served);
    jsonout_string(json, "kernel", served && candidate->kernel_count > 0 ? candidate->kernels[0].name : NULL);
    jsonout_array(json, "kernels");
    for (uint32_t i = 0; i < candidate->kernel_count; i++) {
        jsonout_object(json, NULL);
        jsonout_string(json, "name", candidate->kernels[i].name);
        jsonout_string(json, "when", candidate->kernels[i].when);
        jsonout_string(json, "graph_level", graph_level_name(candidate->kernels[i].graph_level));
        jsonout_string(json, "speed", speed_name(candidate->kernels[i].speed));
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_array(json, "reasons");
    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const struct attn_reason *reason = &candidate->reasons[i];
        jsonout_object(json, NULL);
        jsonout_string(json, "code", attn_reason_name(reason->code));
        jsonout_string(json, "text", reason->text[0] != '\0' ? reason->text : attn_reason_text(reason->code));
        jsonout_string(json, "advice", text_or_null(attn_reason_advice(reason->code)));
        jsonout_string(json, "kernel", text_or_null(reason->kernel));
        jsonout_string(json, "key", text_or_null(reason->field));
        jsonout_string(json, "got", text_or_null(reason->got));
        jsonout_string(json, "wanted", text_or_null(reason->wanted));
        jsonout_close(json);
    }
    jsonout_close(json);
    jsonout_close(json);
}

static int print_json(const struct attn_decision *decision, const struct attn_problem *problem,
                      const char *text, int code)
{
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    struct jsonout *json = jsonout_create("explain");
    const struct attn_candidate *candidate;

    jsonout_string(json, "problem", text);
    jsonout_string(json, "requested", info->requested);
    jsonout_string(json, "effective", info->effective);
    jsonout_string(json, "device", info->device);
    jsonout_bool(json, "fallback", info->fallback != 0);
    jsonout_string(json, "decided_by", attn_decided_by_name(info->decided_by));
    jsonout_string(json, "text", text_or_null(info->text));
    jsonout_array(json, "candidates");
    for (uint32_t i = 0; (candidate = attn_decision_get_candidate(decision, i)) != NULL; i++)
        json_candidate(json, candidate);
    jsonout_close(json);
    explain_ranks_json(json, problem);
    return json_end(json, code);
}

static int explain(const struct info *info, const struct attn_problem *problem)
{
    struct attn_select_options options;
    struct attn_decision *decision = NULL;
    struct attn_error err;

    ATTN_INIT(&options);
    ATTN_INIT(&err);
    options.ask_all = info->all;
    int32_t status = attn_select(info->context, problem, 1, &options, &decision, &err);
    if (status != ATTN_OK)
        complain("%s", err.message);
    if (decision == NULL)
        return EXIT_NO;
    const struct attn_decision_info *decided = attn_decision_get_info(decision);
    int code = status == ATTN_OK && decided->effective != NULL ? EXIT_YES : EXIT_NO;
    char *text = canonical(problem);
    if (info->common.json)
        code = print_json(decision, problem, text, code);
    else
        explain_print(decision, attn_reason_is_explicit(err.reason) != 0);
    if (!info->common.json)
        explain_ranks_print(problem);
    free(text);
    attn_decision_destroy(decision);
    return code;
}

int explain_command(const struct info *info)
{
    struct attn_problem problem;
    struct attn_error err;
    char *text = problem_text(info);

    ATTN_INIT(&problem);
    ATTN_INIT(&err);
    int32_t status = attn_problem_parse(text, &problem, &err);
    free(text);
    if (status != ATTN_OK) {
        complain("%s", err.message);
        return status == ATTN_E_INVALID ? EXIT_USAGE : EXIT_NO;
    }
    return explain(info, &problem);
}
