# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests that print TAP: each function of a module whose name begins with test_, one line for each check."""
import importlib.util
import sys
import traceback

_count = _failed = 0


def check(good, name, more=""):
    """One line; `more` follows where it failed."""
    global _count, _failed
    _count += 1
    _failed += not good
    print(f"{'' if good else 'not '}ok {_count} - {name}", flush=True)
    if not good and more != "":
        print("\n".join(f"# {line}" for line in str(more).splitlines()), flush=True)


def installed(package):
    """Whether a package is there to be imported; a folder of tests that has its name is not one."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def skip(name, reason):
    """One line for what cannot be tested here."""
    global _count
    _count += 1
    print(f"ok {_count} - {name} # SKIP {reason}", flush=True)


def raises(error, call, name, *parts):
    """That a call raises an error whose sentence has all parts."""
    try:
        call()
    except error as caught:
        check(all(part in str(caught) for part in parts), name, caught)
        return caught
    check(False, name, "nothing was raised")
    return None


def finish():
    """The plan, and the end of the process."""
    print(f"1..{_count}")
    sys.exit(_failed > 0 or _count == 0)


def main(module):
    """Runs the tests of a module, those named in the command line or all, and exits."""
    for name, test in list(vars(module).items()):
        if name.startswith("test_") and callable(test) and (len(sys.argv) == 1 or name in sys.argv):
            try:
                test()
            except Exception:  # a test that ends early has failed
                check(False, name, traceback.format_exc())
    finish()
