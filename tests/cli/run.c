/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Starts a tool in a clean environment and reads what it wrote. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"

enum { WORDS = 64 };

extern char **environ;

/* Splits at spaces, in place. */
static void split(char *text, char **words, unsigned *count)
{
    for (char *word = strtok(text, " "); word != NULL && *count + 1 < WORDS; word = strtok(NULL, " "))
        words[(*count)++] = word;
    words[*count] = NULL;
}

/* Keeps the environment, but for the variables of the library. */
static void set_environment(char *variables)
{
    char *words[WORDS] = {NULL};
    unsigned count = 0;

    for (char **variable = environ; *variable != NULL;) {
        if (strncmp(*variable, "ATTN_", 5) != 0) {
            variable++;
            continue;
        }
        char *name = strndup(*variable, strcspn(*variable, "="));
        unsetenv(name);
        free(name);
        variable = environ;
    }
    setenv("ATTN_PLUGIN_PATH", places.plugins, 1);
    split(variables, words, &count);
    for (unsigned i = 0; i < count; i++)
        putenv(words[i]);
}

static char *read_all(FILE *file)
{
    char *text;
    long size;

    fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    text = calloc((size_t)size + 1, 1);
    if (text == NULL || fread(text, 1, (size_t)size, file) != (size_t)size)
        exit(2);
    fclose(file);
    return text;
}

void run(struct result *result, const char *variables, const char *program, const char *arguments)
{
    char *words[WORDS] = {(char *)(uintptr_t)program};
    char *argument_text = strdup(arguments), *variable_text = strdup(variables);
    FILE *out = tmpfile(), *err = tmpfile();
    unsigned count = 1;
    int status;

    if (argument_text == NULL || variable_text == NULL || out == NULL || err == NULL)
        exit(2);
    split(argument_text, words, &count);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        set_environment(variable_text);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        execv(program, words);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    result->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result->out = read_all(out);
    result->err = read_all(err);
    result->json = json_loads(result->out, JSON_REJECT_DUPLICATES, NULL);
    free(argument_text);
    free(variable_text);
}

void result_finish(struct result *result)
{
    json_decref(result->json);
    free(result->out);
    free(result->err);
}
