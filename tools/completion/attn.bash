# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Completion of the tools of libattn for bash. Each tool knows its own commands, options, keys and values.

_attn()
{
    local line=${COMP_LINE:0:COMP_POINT} candidate typed
    local -a words

    # Not COMP_WORDS: bash takes words apart at the = of KEY=VALUE.
    read -r -a words <<<"$line"
    case $line in
    *[[:space:]]) words+=("") ;;
    esac
    typed=${words[${#words[@]} - 1]}
    COMPREPLY=()
    while IFS= read -r candidate; do
        case $candidate in
        *=) compopt -o nospace ;;
        esac
        # What bash replaces begins behind the =.
        case $COMP_WORDBREAKS:$typed in
        *=*:*=*) candidate=${candidate#"${typed%%=*}="} ;;
        esac
        COMPREPLY+=("$candidate")
    done < <("${words[0]}" --complete -- "${words[@]:1}" 2>/dev/null)
}

# Without candidates, as behind "attn-info why", names of files.
complete -o default -F _attn attn-info attn-bench attn-check attn-generate attn-replay
