/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What attn-info --complete offers beside options: commands and their arguments. */
#include <stdlib.h>
#include <string.h>

#include "complete.h"
#include "info.h"

static void offer_variables(const struct command_line *line, struct attn_context *context)
{
    const struct attn_variable_record *variable;

    for (uint32_t i = 0; (variable = attn_context_get_variable(context, i)) != NULL; i++)
        complete_offer(line, "", variable->name, "");
}

void info_offer(const struct command_line *line, const char *lead)
{
    const char *command = line->count > 0 ? line->words[0] : "";
    struct attn_context *context;

    if (line->count == 0 || (line->count == 1 && strcmp(command, "help") == 0)) {
        for (const struct command *known = commands; known->name != NULL; known++)
            complete_offer(line, "", known->name, "");
        return;
    }
    if (strcmp(command, "explain") == 0) {
        complete_problem(line, 1);
        return;
    }
    if (line->count > 1 || attn_context_create(NULL, &context, NULL) != ATTN_OK)
        return;
    if (strcmp(command, "env") == 0)
        offer_variables(line, context);
    else if (strcmp(command, "caps") == 0 || strcmp(command, "exists") == 0)
        complete_backends(line, lead, context);
    attn_context_destroy(context);
}
