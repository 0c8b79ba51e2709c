/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* attn-info doctor: runs all checks and prints what they found, with a remedy for what should be mended. */
#include <stdarg.h>
#include <stdlib.h>

#include "doctor.h"

static const char *const level_names[] = {[OK] = "ok", [NOTE] = "note", [MEND] = "mend"};

void doctor_tell(struct doctor *doctor, enum level level, const char *check, const char *remedy,
                 const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    doctor->findings = need_memory(doctor->findings, (size_t)doctor->count + 1, sizeof *doctor->findings);
    doctor->findings[doctor->count++] = (struct finding){
        level, check, need_copy(text), text_or_null(remedy) != NULL ? need_copy(remedy) : NULL};
}

static void print_text(const struct doctor *doctor, unsigned wrong)
{
    static const enum style styles[] = {[OK] = STYLE_GOOD, [NOTE] = STYLE_PLAIN, [MEND] = STYLE_BAD};
    FILE *out = output_stream();

    for (unsigned i = 0; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        style_print(out, styles[finding->level], level_names[finding->level]);
        char *text = need_format("%s: %s", finding->check, finding->text);
        fprintf(out, "%*s", finding->level == OK ? 4 : 2, "");
        output_wrap(6, 6, text);
        free(text);
        if (finding->remedy != NULL) {
            fputs("      -> ", out);
            output_wrap(9, 9, finding->remedy);
        }
    }
    if (wrong == 0)
        fputs("all is well\n", out);
    else
        fprintf(out, "%u thing%s to mend\n", wrong, wrong == 1 ? "" : "s");
}

static int print_json(const struct doctor *doctor, int code)
{
    struct jsonout *json = jsonout_create("doctor");

    jsonout_bool(json, "well", code == EXIT_YES);
    jsonout_array(json, "findings");
    for (unsigned i = 0; i < doctor->count; i++) {
        const struct finding *finding = &doctor->findings[i];
        jsonout_object(json, NULL);
        jsonout_string(json, "level", level_names[finding->level]);
        jsonout_string(json, "check", finding->check);
        jsonout_string(json, "text", finding->text);
        jsonout_string(json, "remedy", finding->remedy);
        jsonout_close(json);
    }
    jsonout_close(json);
    return json_end(json, code);
}

int doctor_command(const struct info *info)
{
    struct doctor doctor = {.info = info};
    unsigned wrong = 0;
    int code = report_everything(info, &doctor.report);

    if (code != EXIT_YES)
        return code;
    check_path(&doctor);
    check_files(&doctor);
    check_devices(&doctor);
    check_probe(&doctor);
    check_cache(&doctor);
    check_variables(&doctor);
    check_selection(&doctor);
    for (unsigned i = 0; i < doctor.count; i++)
        wrong += doctor.findings[i].level == MEND;
    code = wrong == 0 ? EXIT_YES : EXIT_NO;
    if (info->common.json)
        code = print_json(&doctor, code);
    else
        print_text(&doctor, wrong);
    for (unsigned i = 0; i < doctor.count; i++) {
        free(doctor.findings[i].text);
        free(doctor.findings[i].remedy);
    }
    free(doctor.findings);
    attn_report_destroy(doctor.report);
    return code;
}
