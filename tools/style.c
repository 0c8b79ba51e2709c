/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Colour, on a terminal alone. */
#include "style.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool coloured;

void style_init(int fd)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");

    coloured = isatty(fd) && (none == NULL || none[0] == '\0') && terminal != NULL && terminal[0] != '\0' &&
               strcmp(terminal, "dumb") != 0;
}

void style_print(FILE *stream, enum style style, const char *text)
{
    static const char *const codes[] = {
        [STYLE_PLAIN] = "", [STYLE_TITLE] = "\033[1m", [STYLE_GOOD] = "\033[32m", [STYLE_BAD] = "\033[31m"};
    bool painted = coloured && style != STYLE_PLAIN && text[0] != '\0';

    fprintf(stream, "%s%s%s", painted ? codes[style] : "", text, painted ? "\033[0m" : "");
}
