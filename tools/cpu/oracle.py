# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of single rows in double precision, by which the results of peers are judged."""

import math
import random
from operator import mul

PAIRS = 4  # query token and head of a sequence that are compared


def pairs(case, seed):
    """(sequence, query token, head) to compare: the last one of all, the first, and some between."""
    rng = random.Random(seed)
    found = [(case["seqs"] - 1, case["queries"] - 1, case["heads"] - 1), (0, 0, 0)]
    while len(found) < PAIRS:
        found.append((rng.randrange(case["seqs"]), rng.randrange(case["queries"]), rng.randrange(case["heads"])))
    return found


def visible(case, token):
    """How many keys a query token sees, from the first."""
    return case["keys"] - case["queries"] + token + 1 if case["causal"] else case["keys"]


def attention(query, keys, values, bias=None):
    """The result row of one query. Keys and values are flat lists, a row of the query's length for each key; `bias` is
    added to the scores."""
    dim = len(query)
    scaled = [element / math.sqrt(dim) for element in query]
    scores = [sum(map(mul, scaled, keys[start:start + dim])) for start in range(0, len(keys), dim)]
    if bias is not None:
        scores = [score + more for score, more in zip(scores, bias)]
    most = max(scores)
    weights = [math.exp(score - most) for score in scores]
    total = sum(weights)
    return [sum(map(mul, weights, values[column::dim])) / total for column in range(dim)]


def distance(rows):
    """Relative distance (Frobenius) of pairs (result, what is right); what is no number counts as infinite."""
    above = below = 0.0
    for got, want in rows:
        above += sum((one - other) ** 2 for one, other in zip(got, want))
        below += sum(other * other for other in want)
    error = math.sqrt(above / below)
    return error if error == error else math.inf
