/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What ATTN_RECORD writes of a call, what it leaves out, and what it says when it writes nothing. */
#include "fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attn/device.h"
#include "record/recorder.h"

/* A record of the only file; its parts point into *data. */
static void read_back(const struct fixture *fixture, struct attn__call *call, unsigned char **data)
{
    struct attn_problem problem;
    struct attn_error err;
    size_t size;

    ATTN_INIT(&err);
    *data = fixture_load(fixture, &size);
    cr_assert_eq(attn__record_read(*data, size, call, &problem, &err), ATTN_OK, "%s", err.message);
    cr_assert_eq(memcmp(&problem, &fixture->problem, sizeof problem), 0);
}

static void expect_shape(const struct attn__part *part, uint64_t a, uint64_t b, uint64_t c, uint64_t row)
{
    cr_assert_eq(part->form, ATTN__PART_BYTES);
    cr_assert(part->count[0] == a && part->count[1] == b && part->count[2] == c && part->row == row);
}

Test(record, a_file_has_the_call)
{
    static const int32_t pages[] = {7, 2, 5, 8}, table[] = {0, 1, 2, 1, 3, -1};
    struct fixture *fixture = fixture_open("");
    struct attn__call call;
    unsigned char *data;

    cr_assert_eq(fixture_run(fixture), ATTN_OK, "%s", fixture->err.message);
    read_back(fixture, &call, &data);
    cr_assert_str_eq(call.backend, "cpu/flash-attn");
    cr_assert_str_eq(call.device, "cpu:0");
    cr_assert_str_eq(call.libattn, attn_version());
    cr_assert_str_eq(call.status, "ATTN_OK");
    cr_assert(call.kernels[0] != '\0' && call.numerics > 0 && call.units == 2 && call.call == 1);
    cr_assert(call.seqs == SEQS && call.num_tokens == TOKENS && call.max_q == 3 && call.max_kv == KEYS);
    /* Of the cache the pages that the table names, as often as there are different ones, in its order. */
    cr_assert(call.kv_pages == 4 && call.kv_block == BLOCK && call.table_width == 3);
    expect_shape(&call.parts[ATTN__PART_table], SEQS, 3, 1, 4);
    cr_assert_eq(memcmp(call.parts[ATTN__PART_table].bytes, table, sizeof table), 0);
    expect_shape(&call.parts[ATTN__PART_k], 4, BLOCK, KV_HEADS, DIM * 4);
    for (size_t i = 0; i < 4; i++) {
        const size_t size = sizeof fixture->cache[0][0];
        cr_assert_eq(memcmp(call.parts[ATTN__PART_k].bytes + i * size, fixture->cache[pages[i]][0], size), 0);
        cr_assert_eq(memcmp(call.parts[ATTN__PART_v].bytes + i * size, fixture->cache[pages[i]][1], size), 0);
    }
    /* Rows without the gaps between them, and what these were. */
    expect_shape(&call.parts[ATTN__PART_q], TOKENS, HEADS, 1, DIM * 4);
    cr_assert_eq(call.parts[ATTN__PART_q].stride[0], (int64_t)sizeof fixture->q[0]);
    cr_assert_eq(call.parts[ATTN__PART_q].align, (uintptr_t)fixture->q % ATTN__RECORD_ALIGN);
    cr_assert_eq(call.parts[ATTN__PART_k].stride[0], (int64_t)sizeof fixture->cache[0]);
    for (size_t i = 0; i < TOKENS; i++)
        cr_assert_eq(
            memcmp(call.parts[ATTN__PART_q].bytes + i * HEADS * DIM * 4, fixture->q[i], HEADS * DIM * 4), 0);
    cr_assert_eq(memcmp(call.parts[ATTN__PART_out].bytes, fixture->out, sizeof fixture->out), 0);
    cr_assert_eq(call.parts[ATTN__PART_lse].form, ATTN__PART_ABSENT);
    free(data);
    fixture_close(fixture);
}

Test(record, results_are_those_without_it)
{
    struct fixture *without = fixture_open(NULL), *with = fixture_open("");

    cr_assert(fixture_run(without) == ATTN_OK && fixture_run(with) == ATTN_OK);
    cr_assert_eq(memcmp(without->out, with->out, sizeof with->out), 0);
    cr_assert_eq(fixture_files(without, 0, NULL), 0);
    cr_assert_eq(fixture_files(with, 0, NULL), 1);
    fixture_close(without);
    fixture_close(with);
}

Test(record, hashes_are_those_of_the_contents)
{
    struct fixture *full = fixture_open(",tensors=full"), *hash = fixture_open(",tensors=hash");
    struct attn__call a, b;
    unsigned char *a_data, *b_data;

    cr_assert(fixture_run(full) == ATTN_OK && fixture_run(hash) == ATTN_OK);
    read_back(full, &a, &a_data);
    read_back(hash, &b, &b_data);
    for (uint32_t kind = 0; kind < ATTN__PARTS; kind++) {
        if (a.parts[kind].form == ATTN__PART_ABSENT)
            continue;
        cr_assert_eq(a.parts[kind].hash, b.parts[kind].hash, "%s", attn__part_name(kind));
        cr_assert_eq(b.parts[kind].form, attn__part_is_tensor(kind) ? ATTN__PART_HASH : ATTN__PART_BYTES);
    }
    free(a_data);
    free(b_data);
    fixture_close(full);
    fixture_close(hash);
}

static unsigned said(const struct fixture *fixture, const char *text)
{
    unsigned count = 0;

    for (const char *at = fixture->log; (at = strstr(at, text)) != NULL; at++)
        count++;
    return count;
}

Test(record, calls_and_skip_bound_the_files)
{
    struct fixture *fixture = fixture_open(",skip=2,calls=3");

    for (int i = 0; i < 9; i++)
        cr_assert_eq(fixture_run(fixture), ATTN_OK);
    cr_assert_eq(fixture_files(fixture, 0, NULL), 3);
    cr_assert(said(fixture, "record: call 3: ") == 1 && said(fixture, "record: call 5: ") == 1, "%s",
              fixture->log);
    cr_assert_eq(said(fixture, "no more are recorded"), 1);
    fixture_close(fixture);
}

Test(record, bytes_bound_the_files)
{
    struct fixture *fixture = fixture_open(",bytes=20K");
    char path[256];
    struct stat info;
    off_t sum = 0;

    for (int i = 0; i < 20; i++)
        cr_assert_eq(fixture_run(fixture), ATTN_OK);
    const unsigned count = fixture_files(fixture, 0, NULL);
    for (unsigned i = 0; i < count; i++) {
        fixture_files(fixture, i, path);
        cr_assert_eq(stat(path, &info), 0);
        cr_assert_eq(info.st_mode & 0777, 0600);
        sum += info.st_size;
    }
    cr_assert(count >= 2 && count < 20 && sum <= 20 << 10, "%u files, %ld bytes", count, (long)sum);
    cr_assert(said(fixture, "bytes= of ATTN_RECORD leaves") > 0, "%s", fixture->log);
    fixture_close(fixture);
}

/* A reason in the log, and no file. */
static void expect_none(struct fixture *fixture, const char *reason)
{
    cr_assert_eq(fixture_files(fixture, 0, NULL), 0);
    cr_assert(said(fixture, "3 record: a call is not recorded: ") == 0);
    cr_assert(said(fixture, "record: a call is not recorded: ") == 1 && said(fixture, reason) == 1, "%s\n%s",
              reason, fixture->log);
}

Test(record, a_file_that_does_not_fit_is_taken_away)
{
    struct fixture *fixture = fixture_open("");
    const struct rlimit limit = {1000, 1000}; /* as if the disk was full */

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(fixture_run(fixture), ATTN_OK);
    expect_none(fixture, "File too large");
    fixture_close(fixture);
}

Test(record, a_directory_that_cannot_be_made_is_named)
{
    struct fixture *fixture = fixture_open("/no/where");

    cr_assert_eq(fixture_run(fixture), ATTN_OK);
    expect_none(fixture, "/no/where: No such file or directory");
    fixture_close(fixture);
}

Test(record, a_call_in_a_graph_is_refused)
{
    struct fixture *fixture = fixture_open("");
    struct attn_graph *graph;

    cr_assert_eq(attn_stream_create(fixture->backend, &fixture->stream, &fixture->err), ATTN_OK);
    cr_assert_eq(attn_graph_begin(fixture->backend, fixture->stream, &graph, &fixture->err), ATTN_OK);
    cr_assert_eq(fixture_run(fixture), ATTN_OK, "%s", fixture->err.message);
    cr_assert_eq(attn_graph_end(graph, &fixture->err), ATTN_OK);
    expect_none(fixture, "while it is captured");
    cr_assert_eq(attn_graph_launch(graph, fixture->stream, &fixture->err), ATTN_OK);
    cr_assert_eq(fixture_files(fixture, 0, NULL), 0);
    attn_graph_destroy(graph);
    attn_stream_destroy(fixture->backend, fixture->stream);
    fixture_close(fixture);
}

Test(record, a_team_is_refused)
{
    struct fixture *fixture = fixture_open("");
    struct attn_cpu_executor team;

    ATTN_INIT(&team);
    team.kind = ATTN_EXECUTOR_TEAM;
    team.nth = 1;
    fixture->stream = &team;
    cr_assert_eq(fixture_run(fixture), ATTN_OK, "%s", fixture->err.message);
    expect_none(fixture, "team of threads");
    fixture_close(fixture);
}

Test(record, a_call_that_fails_is_recorded_without_a_result)
{
    struct fixture *fixture = fixture_open("");
    struct attn__call call;
    unsigned char *data;

    cr_assert_eq(fixture_run(fixture), ATTN_OK);
    char path[256];
    fixture_files(fixture, 0, path);
    cr_assert_eq(unlink(path), 0);
    fixture->kv_lens[1] = 4; /* not what was prepared */
    const int32_t status = attn_plan_run(fixture->plan, &fixture->batch, &fixture->tensors,
                                         &fixture->schedule, &fixture->given, NULL, &fixture->err);
    cr_assert_neq(status, ATTN_OK);
    read_back(fixture, &call, &data);
    cr_assert_str_eq(call.status, attn_status_name(status));
    cr_assert(call.message[0] != '\0' && strstr(fixture->err.message, call.message) != NULL, "%s",
              call.message);
    cr_assert_eq(call.parts[ATTN__PART_out].form, ATTN__PART_ABSENT);
    free(data);
    fixture_close(fixture);
}

/* Arrays that lead outside are not followed. */
Test(record, arrays_that_are_wrong_are_named)
{
    struct fixture *fixture = fixture_open("");

    fixture->desc.pages = PAGES - 1; /* the table names page 8 */
    (void)fixture_run(fixture);
    expect_none(fixture, "batch.table[6] is 8; accepted: below the number of pages, 8");
    fixture_close(fixture);
}

Test(record, options)
{
    static const char *const refused[] = {"relative",
                                          "/a,calls=0",
                                          "/a,calls=",
                                          "/a,calls=x",
                                          "/a,bytes=0",
                                          "/a,bytes=1T",
                                          "/a,bytes=K",
                                          "/a,tensors=some",
                                          "/a,skip=-1",
                                          "/a,",
                                          "/a,calls=1,",
                                          "/a,what=1",
                                          "/a,bytes=999999999999G"};
    struct attn__record_option option;
    char problem[128];

    cr_assert(
        attn__record_parse("/a/b,bytes=3M,calls=7,skip=9,tensors=hash", &option, problem, sizeof problem));
    cr_assert(option.directory == 4 && option.bytes == 3 << 20 && option.calls == 7 && option.skip == 9 &&
              option.hash);
    cr_assert(attn__record_parse("/a", &option, problem, sizeof problem));
    cr_assert(option.bytes == 1 << 30 && option.calls == 100 && option.skip == 0 && !option.hash);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cr_assert_not(attn__record_parse(refused[i], &option, problem, sizeof problem), "%s", refused[i]);
        cr_assert_not_null(strstr(problem, "accepted"), "%s", problem);
    }
}
