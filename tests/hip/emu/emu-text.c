/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Takes the disassembler's text of an instruction apart: name, operands, modifiers. */
#include "emu-text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu-wave.h"

static const struct {
    const char *name;
    uint16_t index;
    uint8_t words;
} registers[] = {
    {"vcc", S_VCC, 2},
    {"vcc_lo", S_VCC, 1},
    {"vcc_hi", S_VCC + 1, 1},
    {"exec", S_EXEC, 2},
    {"exec_lo", S_EXEC, 1},
    {"exec_hi", S_EXEC + 1, 1},
    {"m0", S_M0, 1},
    {"null", S_SINK, 1},
    {"src_scc", S_SCC, 1},
    {"scc", S_SCC, 1},
    {"flat_scratch", S_FLAT, 2},
    {"flat_scratch_lo", S_FLAT, 1},
    {"flat_scratch_hi", S_FLAT + 1, 1},
    {"src_shared_base", S_SHARED, 2},
    {"src_private_base", S_PRIVATE, 2},
};

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

/* "v7", "v[4:7]", "ttmp[8:9]" after its letters. */
static bool read_numbers(const char *s, struct text_operand *o, unsigned base)
{
    unsigned first, last;
    int used = 0;
    if (sscanf(s, "[%u:%u]%n", &first, &last, &used) == 2 && s[used] == '\0') {
        o->index = (uint16_t)(base + first);
        o->words = (uint8_t)(last - first + 1);
        return true;
    }
    if (sscanf(s, "[%u]%n", &first, &used) == 1 && used > 0 && s[used] == '\0') {
        o->index = (uint16_t)(base + first);
        return true;
    }
    if (isdigit((unsigned char)*s) && sscanf(s, "%u%n", &first, &used) == 1 && s[used] == '\0') {
        o->index = (uint16_t)(base + first);
        return true;
    }
    return false;
}

static bool read_register(const char *s, struct text_operand *o)
{
    for (size_t i = 0; i < sizeof registers / sizeof *registers; i++) {
        if (strcmp(s, registers[i].name) == 0) {
            o->kind = TEXT_SGPR;
            o->index = registers[i].index;
            o->words = registers[i].words;
            return true;
        }
    }
    o->kind = s[0] == 'v' || s[0] == 'a' ? TEXT_VGPR : TEXT_SGPR;
    if (starts(s, "ttmp"))
        return read_numbers(s + 4, o, S_TTMP);
    if (s[0] == 'v' || s[0] == 's')
        return read_numbers(s + 1, o, 0);
    return s[0] == 'a' && read_numbers(s + 1, o, 256);
}

static bool read_number(const char *s, struct text_operand *o)
{
    char *end;
    if (starts(s, "lit64(") || starts(s, "lit(")) {
        s = strchr(s, '(') + 1;
        o->kind = TEXT_INTEGER;
        o->integer = strtoull(s, &end, 0);
        return strcmp(end, ")") == 0;
    }
    if (strchr(s, '.') != NULL) {
        o->kind = TEXT_REAL;
        o->real = strtod(s, &end);
        return *end == '\0';
    }
    o->kind = TEXT_INTEGER;
    o->integer = s[0] == '-' ? (uint64_t)strtoll(s, &end, 0) : strtoull(s, &end, 0);
    return *end == '\0';
}

static void read_operand(char *s, struct text_operand *o)
{
    *o = (struct text_operand){.words = 1, .half = -1};
    if (starts(s, "sext(")) {
        o->sext = true;
        s += 5;
        s[strlen(s) - 1] = '\0';
    }
    if (s[0] == '-' && !isdigit((unsigned char)s[1])) {
        o->neg = true;
        s++;
    }
    size_t n = strlen(s);
    if (n > 2 && s[0] == '|' && s[n - 1] == '|') {
        o->abs = true;
        s[n - 1] = '\0';
        s++;
        n -= 2;
    }
    if (n > 2 && s[n - 2] == '.' && (s[n - 1] == 'l' || s[n - 1] == 'h') && s[0] == 'v') {
        o->half = s[n - 1] == 'h';
        s[n - 2] = '\0';
    }
    if (strcmp(s, "off") == 0) {
        o->kind = TEXT_OFF;
        return;
    }
    bool number = isdigit((unsigned char)s[0]) || s[0] == '-' || starts(s, "lit");
    if (number ? read_number(s, o) : read_register(s, o))
        return;
    o->kind = TEXT_WORD;
    snprintf(o->word, sizeof o->word, "%.47s", s);
}

static void read_name(const char *from, size_t n, struct text *out)
{
    static const char *const suffixes[] = {"_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"};
    if (n > 7 && strncmp(from, "v_dual_", 7) == 0) {
        snprintf(out->name, sizeof out->name, "v_%.*s", (int)(n - 7), from + 7);
        return;
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t m = strlen(suffixes[i]);
        if (n > m && strncmp(from + n - m, suffixes[i], m) == 0) {
            n -= m;
            out->sdwa = suffixes[i][1] == 's';
            out->e64 = strncmp(suffixes[i], "_e64", 4) == 0;
            break;
        }
    }
    snprintf(out->name, sizeof out->name, "%.*s", (int)n, from);
}

/* The words of one piece between commas: an operand, then modifiers. */
static bool read_piece(char *s, struct text *out)
{
    bool first = true;
    while (*s != '\0') {
        int depth = 0;
        char *end = s;
        while (*end != '\0' && (depth > 0 || *end != ' ')) {
            depth += *end == '[' || *end == '(';
            depth -= *end == ']' || *end == ')';
            end++;
        }
        bool more = *end == ' ';
        *end = '\0';
        bool modifier = strchr(s, ':') != NULL && strchr(s, '[') != s + 1 && !starts(s, "ttmp") &&
                        s[0] != '-' && s[0] != '|' && !starts(s, "sext(");
        if (*s == '\0') {
        } else if (first && !modifier && !text_modifier(s, out)) {
            if (out->count == TEXT_OPERANDS)
                return false;
            read_operand(s, &out->at[out->count++]);
        } else if ((modifier || !first) && !text_modifier(s, out)) {
            out->unknown = "a modifier";
        }
        first = false;
        s = more ? end + 1 : end;
    }
    return true;
}

bool text_read(const char *from, size_t size, struct text *out)
{
    char copy[256];
    *out =
        (struct text){.src0_sel = 6, .src1_sel = 6, .dst_sel = 6, .dpp = {.row_mask = 15, .bank_mask = 15}};
    while (size > 0 && isspace((unsigned char)*from)) {
        from++;
        size--;
    }
    size_t n = 0;
    while (n < size && from[n] != ' ')
        n++;
    read_name(from, n, out);
    if (size - n >= sizeof copy)
        return false;
    memcpy(copy, from + n, size - n);
    copy[size - n] = '\0';
    char *s = copy;
    while (*s != '\0') {
        while (*s == ' ')
            s++;
        int depth = 0;
        char *end = s;
        while (*end != '\0' && (depth > 0 || *end != ',')) {
            depth += *end == '[' || *end == '(';
            depth -= *end == ']' || *end == ')';
            end++;
        }
        bool more = *end == ',';
        *end = '\0';
        if (!read_piece(s, out))
            return false;
        s = more ? end + 1 : end;
    }
    return true;
}
