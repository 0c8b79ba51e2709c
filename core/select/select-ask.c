/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Asks the candidates, item by item of the wanted list and class by class; opens plugins only if needed. */
#include <stdlib.h>

#include "select/select.h"

/* ---------------------------------------------------------------- slots */

static bool add_slots(struct attn__selection *selection, struct attn__plugin *plugin)
{
    char name[ATTN__NAME_SIZE];
    const char *cursor = plugin->note.backends;
    while (attn__note_next(&cursor, name, sizeof name)) {
        struct attn__slot *grown = realloc(selection->slots, (selection->slot_count + 1) * sizeof *grown);
        if (grown == NULL)
            return false;
        selection->slots = grown;
        struct attn__slot *slot = &grown[selection->slot_count++];
        memset(slot, 0, sizeof *slot);
        slot->plugin = plugin;
        memcpy(slot->name, name, sizeof slot->name);
        attn__wanted_backend(selection->context, selection->decision->requested, name, &slot->reason);
    }
    return true;
}

int32_t attn__selection_list(struct attn__selection *selection, struct attn_error *err)
{
    int32_t status = attn__registry_list(selection->context, &selection->plugins, &selection->plugin_count);
    for (uint32_t i = 0; status == ATTN_OK && i < selection->plugin_count; i++) {
        struct attn__plugin *plugin = selection->plugins[i];
        if (plugin->has_note && !add_slots(selection, plugin))
            status = ATTN_E_MEMORY;
    }
    return status == ATTN_OK ? ATTN_OK
                             : attn__fail(err, status, 0, "plugins", "no memory for the list of plugins");
}

static uint32_t note_class(const struct attn__slot *slot)
{
    const uint32_t class = slot->plugin->note.device_class;
    return class >= 1 && class <= ATTN__CLASSES ? class : ATTN__CLASSES;
}

/* ---------------------------------------------------------------- asking */

static bool list_refused(struct attn__selection *selection, const struct attn__slot *slot, uint32_t item,
                         uint32_t code, const char *text)
{
    struct attn__candidate *candidate =
        attn__candidate_add(selection->decision, slot->name, item, note_class(slot));
    return candidate != NULL && attn__candidate_refuse(candidate, code, "backend", "", "", "%s", text);
}

static bool is_excluded(const struct attn__selection *selection, const struct attn__plugin *plugin,
                        const struct attn_device *device)
{
    return selection->device_type[0] != 0 &&
           (strcmp(selection->device_type, attn__device_type(plugin, device)) != 0 ||
            (selection->ordinal >= 0 && device->ordinal != selection->ordinal));
}

/* Asks a backend about each device of its plugin. */
static bool ask_devices(struct attn__selection *selection, struct attn__backend *entry, uint32_t item)
{
    const struct attn__plugin *plugin = entry->plugin;
    for (uint32_t i = 0; i < plugin->device_count; i++) {
        const struct attn_device_info *info = &plugin->devices[i];
        struct attn__candidate *candidate =
            attn__candidate_add(selection->decision, entry->table.name, item, info->device_class);
        if (candidate == NULL)
            return false;
        candidate->entry = entry;
        attn__candidate_set_device(candidate, &info->device);
        candidate->excluded = is_excluded(selection, plugin, &info->device);
        if (candidate->excluded
                ? !attn__candidate_refuse(candidate, ATTN_REASON_DEVICE, "device", candidate->device_name,
                                          selection->options.device,
                                          "%s is not the device asked for, which is %.64s",
                                          candidate->device_name, selection->options.device)
                : !attn__candidate_ask(candidate, selection->problems, selection->problem_count))
            return false;
        if (selection->strict == 2 && !attn__candidate_refuse_generic(candidate))
            return false;
    }
    return true;
}

/* Lists a backend without any device: why it has none, and what it answers about the problems. */
static bool ask_without_device(struct attn__selection *selection, struct attn__backend *entry, uint32_t item)
{
    struct attn__plugin *plugin = entry->plugin;
    struct attn__candidate *candidate =
        attn__candidate_add(selection->decision, entry->table.name, item, entry->table.device_class);
    if (candidate == NULL)
        return false;
    candidate->entry = entry;
    const uint32_t code = plugin->device_reason != 0 ? plugin->device_reason : ATTN_REASON_NO_DEVICE;
    return attn__candidate_refuse(candidate, code, "device", "", "", "%.150s", plugin->device_text) &&
           attn__candidate_ask(candidate, selection->problems, selection->problem_count);
}

/* Everything about one slot, which may have been asked for by name; false without memory. */
static bool ask_slot(struct attn__selection *selection, struct attn__slot *slot, uint32_t item, bool named)
{
    slot->done = true;
    char text[160] = "";
    for (int tries = 0; attn__plugin_open(slot->plugin, named) != ATTN_OK; tries++) {
        const uint32_t code = attn__plugin_reason(slot->plugin, text, sizeof text);
        if (code != 0)
            return list_refused(selection, slot, item, code, text);
        if (tries == 3) { /* a rescan started over with the file each time */
            return list_refused(selection, slot, item, ATTN_REASON_NOT_ASKED,
                                "the directories are read again just now");
        }
    }
    struct attn__backend *entry = attn__plugin_find(slot->plugin, slot->name);
    if (entry == NULL) {
        return list_refused(selection, slot, item, ATTN_REASON_NOTE_MISMATCH,
                            "the note names this backend, but the tables do not");
    }
    if (attn__plugin_ask_devices(slot->plugin) != ATTN_OK) {
        const uint32_t code = attn__plugin_reason(slot->plugin, text, sizeof text);
        return list_refused(selection, slot, item, code != 0 ? code : ATTN_REASON_ENTRY_FAILED, text);
    }
    return slot->plugin->device_count > 0 ? ask_devices(selection, entry, item)
                                          : ask_without_device(selection, entry, item);
}

/* Whether a slot has to be asked now. */
static bool is_due(const struct attn__selection *selection, const struct attn__slot *slot, const char *name,
                   uint32_t place)
{
    return !slot->done && slot->reason == 0 && selection->order[note_class(slot)] <= place &&
           attn__item_matches(name, slot->name);
}

/* Asks every wanted slot up to a class. If a file fails, the next one of its name is no duplicate then. */
static bool ask_class(struct attn__selection *selection, const char *name, uint32_t item, uint32_t place)
{
    const bool named = !attn__same_name(name, "auto");
    bool fits = true;
    for (uint32_t i = 0; fits && i < selection->slot_count; i++) {
        struct attn__slot *slot = &selection->slots[i];
        if (!is_due(selection, slot, name, place))
            continue;
        if (attn__plugin_is_usable(slot->plugin)) {
            fits = ask_slot(selection, slot, item, named);
            continue;
        }
        char text[160];
        const uint32_t code = attn__plugin_reason(slot->plugin, text, sizeof text);
        slot->done = code != ATTN_REASON_DUPLICATE;
        if (slot->done && code != 0) /* a file without a reason has just vanished */
            fits = list_refused(selection, slot, item, code, text);
    }
    return fits;
}

/* The best candidate of an item, if no file that was not asked can have a better class. */
static struct attn__candidate *find_winner(const struct attn__selection *selection, const char *name,
                                           uint32_t place)
{
    struct attn__candidate *best = NULL;
    for (uint32_t i = 0; i < selection->decision->count; i++) {
        struct attn__candidate *candidate = selection->decision->candidates[i];
        if (candidate->info.accepted && attn__item_matches(name, candidate->name) &&
            (best == NULL || attn__candidate_compare(candidate, best) < 0))
            best = candidate;
    }
    const uint32_t class = best != NULL ? best->info.device_class : 0;
    return class >= 1 && class <= ATTN__CLASSES && selection->order[class] > place ? NULL : best;
}

static bool list_missing(struct attn__selection *selection, const char *name, uint32_t item)
{
    for (uint32_t i = 0; i < selection->slot_count; i++)
        if (attn__item_matches(name, selection->slots[i].name))
            return true;
    char text[160];
    attn__item_explain(name, selection->plugins, selection->plugin_count,
                       selection->decision->info.decided_by == ATTN_DECIDED_BY_ENVIRONMENT, text,
                       sizeof text);
    struct attn__candidate *candidate = attn__candidate_add(selection->decision, name, item, 0);
    return candidate != NULL &&
           attn__candidate_refuse(candidate, ATTN_REASON_NO_SUCH_BACKEND, "backend", name, "", "%s", text);
}

/* One item of the wanted list. After the winner is known others are asked only on demand. */
static bool ask_item(struct attn__selection *selection, const char *name, uint32_t item)
{
    struct attn_decision *decision = selection->decision;
    const bool is_auto = attn__same_name(name, "auto");
    if (!is_auto && !list_missing(selection, name, item))
        return false;
    for (uint32_t place = 0; place < ATTN__CLASSES; place++) {
        const bool decided = decision->winner != NULL || decision->none;
        if (decided && !selection->options.ask_all)
            break;
        if (!ask_class(selection, name, item, place))
            return false;
        if (!decided) {
            decision->winner = find_winner(selection, name, place);
            decision->won = item;
        }
    }
    return true;
}

/* Why an admitted slot was not asked; "" for the text of NOT_ASKED. */
static const char *rest_text(const struct attn_decision *decision, const struct attn__slot *slot)
{
    if (decision->none)
        return "the wanted list says none before it";
    if (decision->winner != NULL && decision->winner->info.device_class < note_class(slot))
        return "";
    return "an earlier item of the wanted list, or the device asked for, is served already";
}

/* Lists the slots that were not asked, each with the cause. */
static bool list_rest(struct attn__selection *selection)
{
    const struct attn_decision *decision = selection->decision;
    for (uint32_t i = 0; i < selection->slot_count; i++) {
        struct attn__slot *slot = &selection->slots[i];
        if (slot->done || (slot->reason == 0 && !attn__plugin_is_usable(slot->plugin) &&
                           attn__plugin_reason(slot->plugin, NULL, 0) == ATTN_REASON_DUPLICATE))
            continue;
        uint32_t code = slot->reason;
        const char *text = "";
        if (code == 0) {
            code = ATTN_REASON_NOT_ASKED;
            text = rest_text(decision, slot);
        }
        if (!list_refused(selection, slot, ATTN__ITEM_BEHIND, code, text))
            return false;
    }
    return true;
}

int32_t attn__selection_ask(struct attn__selection *selection, struct attn_error *err)
{
    struct attn_decision *decision = selection->decision;
    char name[ATTN__NAME_SIZE];
    const char *cursor = decision->requested;
    bool fits = true;
    while (fits && attn__item_next(&cursor, name, sizeof name)) {
        const uint32_t item = decision->item_count++;
        if (!attn__same_name(name, "none")) {
            fits = ask_item(selection, name, item);
        } else if (decision->winner == NULL && !decision->none) {
            decision->none = true;
            decision->won = item;
        }
    }
    if (!fits || !list_rest(selection))
        return attn__fail(err, ATTN_E_MEMORY, 0, "decision", "no memory for the candidates");
    return ATTN_OK;
}
