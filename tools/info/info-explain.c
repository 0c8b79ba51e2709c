/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info explain: the decision for one problem, candidate by candidate. */
#include <stdlib.h>
#include <string.h>

#include "info.h"

/* The arguments as one problem string; free it. */
static char *problem_text(const struct info *info)
{
    char *text = need_copy("");

    for (unsigned i = 0; i < info->arg_count; i++) {
        char *longer = need_format("%s%s%s", text, i > 0 ? " " : "", info->args[i]);
        free(text);
        text = longer;
    }
    return text;
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

/* `explicit`: the decision's text is a refusal in a backend's own words, and the headline. */
static void print_winner(const struct attn_decision_info *decision, bool explicit)
{
    FILE *out = output_stream();

    bool won = decision->effective != NULL;
    style_print(out, won ? STYLE_GOOD : STYLE_BAD,
                won        ? decision->effective
                : explicit ? decision->text
                           : "no backend");
    if (won)
        fprintf(out, " on %s%s", decision->device, decision->fallback ? " (fallback)" : "");
    fputc('\n', out);
    fprintf(out, "  requested: %s, by %s\n", output_shown(decision->requested),
            decision->decided_by == ATTN_DECIDED_BY_CALL          ? "the call"
            : decision->decided_by == ATTN_DECIDED_BY_ENVIRONMENT ? "ATTN_BACKEND"
                                                                  : "default");
    if (text_or_null(decision->text) != NULL && !explicit) {
        fputs("  ", out);
        output_wrap(2, 2, decision->text);
    }
}

/* True if the advice of a code was printed before candidate `upto`, or for one of its first `reasons`. */
static bool advice_was_given(const struct attn_decision *decision, uint32_t upto, uint32_t reasons,
                             uint32_t code)
{
    for (uint32_t i = 0; i <= upto; i++) {
        const struct attn_candidate *candidate = attn_decision_get_candidate(decision, i);
        uint32_t count = i < upto ? candidate->reason_count : reasons;
        for (uint32_t j = 0; j < count && !candidate->accepted; j++)
            if (candidate->reasons[j].code == code)
                return true;
    }
    return false;
}

static void print_reasons(const struct attn_decision *decision, uint32_t index)
{
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, index);
    FILE *out = output_stream();

    for (uint32_t i = 0; i < candidate->reason_count; i++) {
        const struct attn_reason *reason = &candidate->reasons[i];
        const char *advice = attn_reason_advice(reason->code);
        int column = fprintf(out, "  %s%s%s: ", reason->kernel, reason->kernel[0] != '\0' ? " " : "",
                             attn_reason_name(reason->code));

        output_wrap((unsigned)column, 4,
                    reason->text[0] != '\0' ? reason->text : attn_reason_text(reason->code));
        if (text_or_null(advice) != NULL && !candidate->accepted &&
            !advice_was_given(decision, index, i, reason->code)) {
            fputs("    advice: ", out);
            output_wrap(12, 6, advice);
        }
    }
}

/* How fast a kernel is. That it is generic is what a reader must see. */
static int print_speed(FILE *out, uint32_t speed)
{
    const char *name = speed_name(speed);

    fputc('(', out);
    style_print(out, speed == ATTN_SPEED_GENERIC ? STYLE_BAD : STYLE_PLAIN, name != NULL ? name : "-");
    fputs("): ", out);
    return (int)strlen(name != NULL ? name : "-") + 4;
}

static void print_candidate(const struct attn_decision *decision, uint32_t index)
{
    const struct attn_candidate *candidate = attn_decision_get_candidate(decision, index);
    FILE *out = output_stream();

    fprintf(out, "\n%s%s%s: ", output_shown(candidate->name), candidate->device != NULL ? " on " : "",
            candidate->device != NULL ? candidate->device : "");
    style_print(out, candidate->accepted ? STYLE_GOOD : STYLE_BAD,
                candidate->accepted ? "accepted" : "not taken");
    fputc('\n', out);
    for (uint32_t i = 0; i < candidate->kernel_count && candidate->accepted; i++) {
        const struct attn_kernel_info *kernel = &candidate->kernels[i];
        const char *level = graph_level_name(kernel->graph_level);
        int column = fprintf(out, "  %s ", kernel->name);
        column += print_speed(out, kernel->speed);
        char *when = need_format("%s (graph capture: %s)", kernel->when[0] != '\0' ? kernel->when : "always",
                                 level != NULL ? level : "not said");
        output_wrap((unsigned)column, 4, when);
        free(when);
    }
    print_reasons(decision, index);
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

static int print_json(const struct attn_decision *decision, const char *problem, int code)
{
    const struct attn_decision_info *info = attn_decision_get_info(decision);
    struct jsonout *json = jsonout_create("explain");
    const struct attn_candidate *candidate;

    jsonout_string(json, "problem", problem);
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
    if (info->common.json) {
        code = print_json(decision, text, code);
    } else {
        print_winner(decided, attn_reason_is_explicit(err.reason) != 0);
        for (uint32_t i = 0; attn_decision_get_candidate(decision, i) != NULL; i++)
            print_candidate(decision, i);
    }
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
