/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-replay says of a record and its replay, as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>

#include "jsonout.h"
#include "output.h"
#include "replay.h"

/* A name in the left column, and a text that is wrapped beside it. */
static void line(const char *name, const char *text)
{
    enum { COLUMN = 11 };

    fprintf(output_stream(), "%-*s", COLUMN, name);
    output_wrap(COLUMN, COLUMN, text);
}

static void line_of(const char *name, char *text)
{
    line(name, text);
    free(text);
}

static char *numbers_text(const struct rerun *rerun, const struct comparison *c)
{
    if (rerun->record->failed)
        return need_copy("the recorded call failed, and left no result to compare with");
    if (rerun->record->seeded)
        return need_copy(
            "the record has hashes of its tensors alone: these numbers are made of them, and are "
            "not those that the program had");
    if (!c->compared)
        return need_copy("the replay failed, and left no result to compare");
    if (c->differing == 0)
        return need_format("equal in all bits of %llu numbers", (unsigned long long)c->numbers);
    return need_format("%llu of %llu numbers differ, at most by %.3g: row %u head %u column %u of %s",
                       (unsigned long long)c->differing, (unsigned long long)c->numbers, c->largest, c->row,
                       c->head, c->column, c->array);
}

static char *judgements_text(const struct judgement *recorded, const struct judgement *replayed)
{
    const struct judgement *const both[] = {recorded, replayed};
    char *texts[2];

    for (int i = 0; i < 2; i++)
        texts[i] = !both[i]->judged ? need_copy("not judged")
                   : both[i]->right ? need_copy("right")
                                    : need_format("WRONG (%s)", both[i]->why);
    char *text = need_format("recorded %s, replayed %s", texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    return text;
}

void print_text(const struct rerun *rerun, const struct comparison *comparison)
{
    const struct attn__call *call = &rerun->record->call;

    line_of("record", need_format("call %llu of a program with libattn %s", (unsigned long long)call->call,
                                  call->libattn));
    line_of("recorded", need_format("%s %s on %s%s%s, by %s%s%s", call->backend, call->plugin, call->device,
                                    call->arch[0] != '\0' ? ", " : "", call->arch, call->kernels,
                                    call->cpu_flags[0] != '\0' ? ", ATTN_CPU_FLAGS=" : "", call->cpu_flags));
    line_of("replayed", need_format("%s on %s, by %s", attn_backend_get_name(rerun->backend),
                                    attn_backend_get_device(rerun->backend), rerun->info.kernels));
    line("problem", call->problem);
    line_of("step", need_format("seqs=%llu tokens=%llu max_q=%llu max_kv=%llu",
                                (unsigned long long)call->seqs, (unsigned long long)call->num_tokens,
                                (unsigned long long)call->max_q, (unsigned long long)call->max_kv));
    if (rerun->record->failed)
        line_of("failed", need_format("recorded: %s: %s", call->status, call->message));
    if (rerun->status != ATTN_OK)
        line_of("failed",
                need_format("replayed: %s: %s", attn_status_name(rerun->status), rerun->err.message));
    line_of("results", numbers_text(rerun, comparison));
    line_of("oracle", judgements_text(&comparison->recorded, &comparison->replayed));
}

static void judgement_json(struct jsonout *json, const struct judgement *judgement)
{
    jsonout_string(json, "result", !judgement->judged ? NULL : judgement->right ? "right" : "wrong");
    jsonout_string(json, "why", judgement->judged && !judgement->right ? judgement->why : NULL);
}

bool print_json(const struct rerun *rerun, const struct comparison *comparison)
{
    const struct attn__call *call = &rerun->record->call;
    struct jsonout *json = jsonout_create("replay");

    jsonout_string(json, "file", rerun->record->path);
    jsonout_integer(json, "call", (int64_t)call->call);
    jsonout_string(json, "problem", call->problem);
    jsonout_integer(json, "seqs", (int64_t)call->seqs);
    jsonout_integer(json, "num_tokens", (int64_t)call->num_tokens);
    jsonout_string(json, "tensors", rerun->record->seeded ? "hash" : "full");
    jsonout_object(json, "recorded");
    jsonout_string(json, "libattn", call->libattn);
    jsonout_string(json, "plugin", call->plugin);
    jsonout_string(json, "backend", call->backend);
    jsonout_string(json, "device", call->device);
    jsonout_string(json, "arch", call->arch);
    jsonout_strings(json, "kernels", call->kernels, ',');
    jsonout_string(json, "cpu_flags", call->cpu_flags);
    jsonout_string(json, "status", call->status);
    jsonout_string(json, "message", call->message);
    judgement_json(json, &comparison->recorded);
    jsonout_close(json);
    jsonout_object(json, "replayed");
    jsonout_string(json, "backend", attn_backend_get_name(rerun->backend));
    jsonout_string(json, "device", attn_backend_get_device(rerun->backend));
    jsonout_strings(json, "kernels", rerun->info.kernels, ',');
    jsonout_string(json, "status", attn_status_name(rerun->status));
    jsonout_string(json, "message", rerun->status != ATTN_OK ? rerun->err.message : "");
    judgement_json(json, &comparison->replayed);
    jsonout_close(json);
    jsonout_object(json, "results");
    jsonout_bool(json, "compared", comparison->compared);
    jsonout_bool(json, "equal", comparison->compared && comparison->differing == 0);
    jsonout_integer(json, "numbers", (int64_t)comparison->numbers);
    jsonout_integer(json, "differing", (int64_t)comparison->differing);
    jsonout_real(json, "largest", comparison->largest);
    jsonout_close(json);
    return jsonout_finish(json, output_stream());
}
