# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of arguments of the benchmark scripts, each of which says what it accepts."""

import argparse
import re


def positive(text):
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 999999")
    return int(text)


def whole(text):
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to 999999999")
    return int(text)


def expression(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error
