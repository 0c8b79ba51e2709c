/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Standard output that plugins cannot spoil, messages, wrapped text, and memory. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "show.h"

static FILE *stream;
static const char *program_name = "attn";
static unsigned stream_columns = 80;

/* Descriptors 0 to 2 must exist, or the next file opened would become one of them. */
static void occupy_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* COLUMNS, or those of the terminal. Text in wider lines than the widest here is hard to read, so that only
 * COLUMNS asks for more. A terminal that does not know its width is as wide as a pipe. */
static void measure_columns(int fd)
{
    enum { NARROWEST = 40, WIDEST = 160, WIDEST_ASKED = 1000 };
    const char *asked = getenv("COLUMNS");
    struct winsize size;
    long columns = asked != NULL ? strtol(asked, NULL, 10) : 0;

    if (columns > 0)
        columns = columns > WIDEST_ASKED ? WIDEST_ASKED : columns;
    else if (isatty(fd) && ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col != 0)
        columns = size.ws_col > WIDEST ? WIDEST : size.ws_col;
    else
        return;
    stream_columns = columns < NARROWEST ? NARROWEST : (unsigned)columns;
}

void output_init(const char *program)
{
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    program_name = program;
    occupy_standard_descriptors();
    if (out < 0)
        out = open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || (stream = fdopen(out, "w")) == NULL) {
        complain("cannot set up standard output: %s", strerror(errno));
        exit(EXIT_NO);
    }
    style_init(out);
    measure_columns(out);
}

FILE *output_stream(void)
{
    return stream;
}

unsigned output_columns(void)
{
    return stream_columns;
}

const char *output_program(void)
{
    return program_name;
}

/* True for a pipe or socket that nobody reads any more, as behind "| head -1". */
static bool reader_is_gone(int fd)
{
    struct pollfd end = {.fd = fd};

    return poll(&end, 1, 0) == 1 && (end.revents & (POLLERR | POLLHUP)) != 0;
}

int output_finish(int code)
{
    bool failed = ferror(stream) != 0;

    errno = 0;
    if (fflush(stream) != 0)
        failed = true;
    bool quiet = failed && reader_is_gone(fileno(stream));
    if (fclose(stream) != 0)
        failed = true;
    stream = NULL;
    if (!failed || quiet)
        return code;
    complain("standard output: %s", errno != 0 ? strerror(errno) : "not everything could be written");
    return EXIT_NO;
}

void complain(const char *format, ...)
{
    char words[2048], text[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    attn__show(words, text, sizeof text);
    fprintf(stderr, "%s: %s\n", program_name, text);
}

/* Columns of a UTF-8 text: bytes that do not continue a character. */
static unsigned text_width(const char *text, size_t size)
{
    unsigned width = 0;

    for (size_t i = 0; i < size; i++)
        width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

static char *need_shown(const char *text)
{
    size_t size = 4 * strlen(text) + 1;
    char *shown = need_memory(NULL, size, 1);

    attn__show(text, shown, size);
    return shown;
}

const char *output_shown(const char *text)
{
    static char *kept[4];
    static unsigned next;
    char **place = &kept[next++ % (sizeof kept / sizeof kept[0])];

    free(*place);
    *place = need_shown(text);
    return *place;
}

void output_wrap(unsigned column, unsigned indent, const char *words)
{
    char *shown = need_shown(words);
    const char *text = shown;
    bool fresh = true;

    while (*text != '\0') {
        text += strspn(text, " ");
        size_t size = strcspn(text, " ");
        unsigned width = text_width(text, size);
        if (size == 0)
            break;
        if (column + width + !fresh > stream_columns && column > indent) {
            fprintf(stream, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!fresh) {
            fputc(' ', stream);
            column++;
        }
        fwrite(text, 1, size, stream);
        column += width;
        text += size;
        fresh = false;
    }
    fputc('\n', stream);
    free(shown);
}

void table_init(struct table *table, unsigned columns, const char *const *titles)
{
    *table = (struct table){.columns = columns};
    table_add(table, titles);
}

void table_add(struct table *table, const char *const *cells)
{
    if (table->cells + table->columns > table->capacity) {
        table->capacity = table->capacity * 2 + 16 * (size_t)table->columns;
        table->cell = need_memory(table->cell, table->capacity, sizeof *table->cell);
    }
    for (unsigned i = 0; i < table->columns; i++)
        table->cell[table->cells++] = need_shown(cells[i] != NULL ? cells[i] : "-");
}

static void print_row(const struct table *table, size_t row, const unsigned *width)
{
    char **cell = table->cell + row;
    unsigned columns = table->columns;
    const char *last = cell[columns - 1];
    unsigned column = table->indent, below = table->indent + 4;

    for (unsigned i = 0; i + 1 < columns; i++)
        column += width[i] + 2;
    /* A last cell that would be wrapped into a narrow strip begins on a line of its own. */
    unsigned strip = stream_columns > column ? stream_columns - column : 0;
    bool apart = text_width(last, strlen(last)) > strip && strip < stream_columns / 2;
    fprintf(stream, "%*s", (int)table->indent, "");
    for (unsigned i = 0; i + 1 < columns; i++) {
        unsigned gap = width[i] - text_width(cell[i], strlen(cell[i])) + 2;
        enum style style = row == 0               ? STYLE_TITLE
                           : table->style != NULL ? table->style(i, cell[i])
                                                  : STYLE_PLAIN;
        style_print(stream, style, cell[i]);
        fprintf(stream, "%*s", apart && i + 2 == columns ? 0 : (int)gap, "");
    }
    if (apart)
        fprintf(stream, "\n%*s", (int)below, "");
    if (row == 0) {
        style_print(stream, STYLE_TITLE, last);
        fputc('\n', stream);
    } else {
        output_wrap(apart ? below : column, apart ? below : column, last);
    }
}

void table_finish(struct table *table)
{
    unsigned width[TABLE_COLUMNS] = {0};

    for (size_t i = 0; i < table->cells; i++) {
        unsigned cell = text_width(table->cell[i], strlen(table->cell[i]));
        if (cell > width[i % table->columns])
            width[i % table->columns] = cell;
    }
    for (size_t i = 0; i < table->cells; i += table->columns)
        print_row(table, i, width);
    for (size_t i = 0; i < table->cells; i++)
        free(table->cell[i]);
    free(table->cell);
    *table = (struct table){0};
}

void *need_memory(void *memory, size_t count, size_t size)
{
    void *result = reallocarray(memory, count != 0 ? count : 1, size);

    if (result == NULL) {
        complain("out of memory for %zu times %zu bytes", count, size);
        exit(EXIT_NO);
    }
    return result;
}

char *need_copy(const char *text)
{
    size_t size = strlen(text) + 1;

    return memcpy(need_memory(NULL, size, 1), text, size);
}

char *need_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    int size = vasprintf(&text, format, args);
    va_end(args);
    if (size < 0) {
        complain("out of memory");
        exit(EXIT_NO);
    }
    return text;
}
