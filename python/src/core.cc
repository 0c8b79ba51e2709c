// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What there is and what is chosen: reports, decisions and their reasons, as dictionaries.
#include "plan.h"

#include <optional>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace
{

nb::object text_or_none(const char *text)
{
    return text != nullptr ? nb::object(nb::str(text)) : nb::none();
}

nb::dict kernel_dict(const attn_kernel_info &kernel)
{
    nb::dict dict;
    dict["name"] = kernel.name;
    dict["when"] = kernel.when;
    dict["graph_level"] = kernel.graph_level;
    dict["numerics"] = kernel.numerics;
    dict["speed"] = kernel.speed == ATTN_SPEED_OPTIMISED ? "optimised"
                    : kernel.speed == ATTN_SPEED_GENERIC ? "generic"
                                                         : "";
    return dict;
}

nb::dict reason_dict(const attn_reason &reason)
{
    nb::dict dict;
    dict["code"] = attn_reason_name(reason.code);
    dict["kernel"] = reason.kernel;
    dict["field"] = reason.field;
    dict["got"] = reason.got;
    dict["wanted"] = reason.wanted;
    dict["text"] = reason.text;
    return dict;
}

nb::dict candidate_dict(const attn_candidate &candidate)
{
    nb::dict dict;
    nb::list kernels, reasons;
    for (uint32_t i = 0; i < candidate.kernel_count; i++)
        kernels.append(kernel_dict(candidate.kernels[i]));
    for (uint32_t i = 0; i < candidate.reason_count; i++)
        reasons.append(reason_dict(candidate.reasons[i]));
    dict["name"] = candidate.name;
    dict["device"] = text_or_none(candidate.device);
    dict["accepted"] = candidate.accepted != 0;
    dict["graph_level"] = candidate.graph_level;
    dict["kernels"] = kernels;
    dict["reasons"] = reasons;
    return dict;
}

nb::list candidates(const Decision &decision)
{
    nb::list list;
    for (uint32_t i = 0; i < decision.info().candidate_count; i++)
        list.append(candidate_dict(*attn_decision_get_candidate(decision.handle.get(), i)));
    return list;
}

// Problem strings, or what str() makes one: one of them, or those of a list or tuple.
std::vector<std::string> texts_of(nb::handle problem)
{
    std::vector<std::string> texts;
    if (!nb::isinstance<nb::list>(problem) && !nb::isinstance<nb::tuple>(problem))
        return {nb::cast<std::string>(nb::str(problem))};
    for (nb::handle one : problem)
        texts.push_back(nb::cast<std::string>(nb::str(one)));
    return texts;
}

std::shared_ptr<Decision> select_backend(std::shared_ptr<Context> context, nb::handle problem,
                                         const std::optional<std::string> &backend,
                                         const std::optional<std::string> &device, uint32_t strict,
                                         bool ask_all)
{
    std::vector<attn_problem> problems;
    for (const std::string &text : texts_of(problem))
        problems.push_back(parse(text));
    return decide(std::move(context), problems, backend ? backend->c_str() : nullptr,
                  device ? device->c_str() : nullptr, strict, ask_all);
}

nb::dict directory_dict(const attn_directory_record &record)
{
    nb::dict dict;
    dict["path"] = record.path;
    dict["origin"] = record.origin;
    dict["text"] = record.text;
    return dict;
}

nb::dict file_dict(const attn_file_record &record)
{
    nb::dict dict;
    dict["path"] = record.path;
    dict["stage"] = attn_stage_name(record.stage);
    dict["reason"] = record.reason != 0 ? attn_reason_name(record.reason) : "";
    dict["text"] = record.text;
    dict["advice"] = record.advice;
    dict["name"] = record.name;
    dict["vendor"] = record.vendor;
    dict["version"] = record.version;
    dict["backends"] = record.backends;
    return dict;
}

nb::dict backend_dict(const attn_backend_record &record)
{
    nb::dict dict;
    dict["name"] = record.name;
    dict["state"] = attn_backend_state_name(record.state);
    dict["device"] = record.has_device ? text_or_none(record.device_name) : nb::none();
    dict["device_text"] = record.has_device ? text_or_none(record.device_text) : nb::none();
    dict["memory_bytes"] = record.memory_bytes;
    dict["reason"] = record.reason != 0 ? attn_reason_name(record.reason) : "";
    dict["text"] = record.text;
    dict["advice"] = record.advice;
    dict["file"] = record.file;
    return dict;
}

template <class Record, nb::dict (*Convert)(const Record &)>
nb::list records(const attn_report *report, const Record *(*get)(const attn_report *, uint32_t))
{
    nb::list list;
    for (uint32_t i = 0; const Record *record = get(report, i); i++)
        list.append(Convert(*record));
    return list;
}

// Directories, files and backends, of plugins that ATTN_BACKEND admits.
nb::dict report(const Context &context)
{
    attn_report *made = nullptr;
    Error error;
    check(attn_context_load_all(context.handle.get(), error.get()), error);
    check(attn_context_get_report(context.handle.get(), &made, error.get()), error);
    const Handle<attn_report, attn_report_destroy> held(made);
    nb::dict dict;
    dict["directories"] = records<attn_directory_record, directory_dict>(made, attn_report_get_directory);
    dict["files"] = records<attn_file_record, file_dict>(made, attn_report_get_file);
    dict["backends"] = records<attn_backend_record, backend_dict>(made, attn_report_get_backend);
    return dict;
}

nb::list variables(const Context &context)
{
    nb::list list;
    for (uint32_t i = 0;
         const attn_variable_record *record = attn_context_get_variable(context.handle.get(), i); i++) {
        nb::dict dict;
        dict["name"] = text_or_none(record->name);
        dict["value"] = text_or_none(record->value);
        dict["origin"] = text_or_none(record->origin);
        dict["help"] = text_or_none(record->help);
        dict["problem"] = text_or_none(record->problem);
        list.append(dict);
    }
    return list;
}

nb::dict problem_keys()
{
    nb::dict dict;
    const char *fallback = nullptr, *values = nullptr;
    for (uint32_t i = 0; const char *name = attn_problem_key(i, &fallback, &values); i++)
        dict[name] = nb::make_tuple(text_or_none(fallback), text_or_none(values));
    return dict;
}

} // namespace

void bind_core(nb::module_ &module)
{
    using nb::arg;
    module.def("version", attn_version, "The version of the C library, \"0.1.0\".");
    module.def(
        "problem_format", [](const std::string &text) { return format(parse(text)); }, arg("problem"),
        "The canonical form of a problem string. Raises Error that names key, value and what is accepted.");
    module.def("problem_keys", problem_keys, "Each key of problem strings with its default and its values.");
    module.def("context", process_context,
               "The context of the process; made on first use, when it reads the environment.");
    module.def("forget_context", forget_context,
               "Lets go of the context: the next call reads the environment anew.");

    nb::class_<Decision>(module, "Decision",
                         "Which backend serves a problem, and why; made by Context.select.")
        .def_prop_ro(
            "requested", [](const Decision &self) { return self.info().requested; },
            "The wanted list in force.")
        .def_prop_ro(
            "effective", [](const Decision &self) { return text_or_none(self.info().effective); },
            "The winner's name, or None.")
        .def_prop_ro(
            "device", [](const Decision &self) { return text_or_none(self.info().device); }, "Its device.")
        .def_prop_ro(
            "decided_by", [](const Decision &self) { return attn_decided_by_name(self.info().decided_by); },
            "\"call\", \"environment\" or \"automatic\".")
        .def_prop_ro(
            "fallback", [](const Decision &self) { return self.info().fallback != 0; },
            "Whether it is not the first that was asked for, or below a refused better device.")
        .def_prop_ro(
            "text", [](const Decision &self) { return self.info().text; }, "The decision in one line.")
        .def_prop_ro("candidates", candidates,
                     "Every candidate in the order asked, with kernels and reasons.")
        .def("open", open, arg("threads") = 0,
             "Opens the winner. threads counts on the CPU: 0 takes ATTN_THREADS, else one for each core.");

    nb::class_<Context>(module, "Context", "Plugins, their backends, and the environment as it was read.")
        .def("select", select_backend, arg("problem"), nb::kw_only(), arg("backend") = nb::none(),
             arg("device") = nb::none(), arg("strict") = 0, arg("ask_all") = false,
             "Chooses the backend that serves a problem, or all problems of a list (the layer classes of one "
             "model).\n\n"
             "backend: a wanted list over ATTN_BACKEND, as \"cuda,auto\". device: \"cuda:1\", \"cpu\"; None: "
             "any. strict: 1 refuses "
             "a fallback, 2 also generic kernels. ask_all: also those behind the winner. That none serves is "
             "an answer, not an "
             "error: `effective` is None, and `candidates` say why. Raises Error for a problem, list or "
             "device that cannot be.")
        .def("report", report, "Directories, files and backends, as lists of dictionaries.")
        .def("variables", variables, "Environment variables with value, origin and help.");
}
