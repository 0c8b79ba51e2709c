/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * golden-check [--plugin FILE] DIR: replays every recorded file of a directory and closes with "N passed, N
 * failed"; with a plugin those that have something to do on its device.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "golden.h"
#include "rules.h"

static const struct {
    const char *file;
    golden_fn check;
    bool device; /* arrays of a device are made */
} handlers[] = {
    {"advance_edges.json", check_advance_edges, true},
    {"advance_flash_attn.json", check_advance, true},
    {"advance_flashinfer.json", check_advance, true},
    {"advance_rocm.json", check_advance, true},
    {"builder_common_rocm.json", check_builder, true},
    {"builder_common_xformers.json", check_builder, true},
    {"builder_edges.json", check_edges, true},
    {"builder_flash_attn.json", check_builder, true},
    {"builder_flashinfer.json", check_builder, true},
    {"cache_ops.json", check_cache_ops, true},
    {"forward_traces.json", check_forward, false},
    {"graph_batch_size.json", check_graph_batch_size, false},
    {"graph_state.json", check_graph_state, false},
    {"is_block_tables_empty.json", check_block_tables_empty, false},
    {"selector.json", check_selector, false},
    {"shapes_and_checks.json", check_shapes, false},
    {"slot_mapping.json", check_slot_mapping, false},
    {"start_idx.json", check_start_idx, false},
};

static void check_file(struct golden *g, const char *file)
{
    char path[4096];
    json_error_t error;
    golden_fn check = NULL;

    g->file = file;
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
        if (strcmp(file, handlers[i].file) != 0)
            continue;
        if (golden_device() != NULL && !handlers[i].device)
            return;
        check = handlers[i].check;
    }
    if (check == NULL) {
        golden_broken(g, "no format of this name is known");
        return;
    }
    snprintf(path, sizeof path, "%s/%s", g->directory, file);
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    json_t *data = json_object_get(root, "data");
    unsigned long before = g->passed + g->failed;
    if (data == NULL)
        golden_broken(g, "%s", root == NULL ? error.text : "there is no member \"data\"");
    else
        check(g, data);
    if (data != NULL && g->passed + g->failed == before)
        golden_broken(g, "it holds no case");
    json_decref(root);
}

static int is_json(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

int main(int argc, char **argv)
{
    struct golden g = {0};
    struct dirent **entries = NULL;

    const char *plugin = argc == 4 && strcmp(argv[1], "--plugin") == 0 ? argv[2] : NULL;
    if ((argc != 2 && plugin == NULL) || argv[argc - 1][0] == '-') {
        FILE *out = argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr;
        fprintf(out,
                "Usage: golden-check [--plugin FILE] DIR\nReplays the recorded results in DIR (*.json) "
                "through libattn and closes with \"N passed, N failed\". With a plugin steps are built and "
                "caches written on its device.\n");
        return out == stdout ? 0 : 2;
    }
    g.directory = argv[argc - 1];
    int count = scandir(g.directory, &entries, is_json, alphasort);
    if (count <= 0) {
        fprintf(stderr, "golden-check: %s: %s\n", g.directory,
                count < 0 ? strerror(errno) : "no *.json inside");
        free(entries);
        return 2;
    }
    if (plugin != NULL)
        golden_device_open(&g, plugin);
    for (int i = 0; i < count; i++) {
        check_file(&g, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (plugin != NULL) {
        printf("%lu arrays were read from the device\n", golden_reads());
        if (golden_reads() == 0)
            golden_broken(&g, "nothing was read from the device");
        golden_device_close();
    }
    golden_context_end(&g);
    rules_print();
    golden_print_counts(&g);
    return g.failed == 0 ? 0 : 1;
}
