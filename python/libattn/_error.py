# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exception that failing calls raise."""


class Error(RuntimeError):
    """A call of libattn failed.

    `str(error)` is one sentence: the argument, its value, what is accepted.

    status: "ATTN_E_INVALID", "ATTN_E_NO_BACKEND", "ATTN_E_UNSUPPORTED", ...
    reason: code of a refusal, as "HEAD_DIM", or "".
    field:  the argument, key or variable that is at fault, or "".
    advice: what to do.
    """

    def __init__(self, message: str, status: str, reason: str = "", field: str = "", advice: str = "") -> None:
        super().__init__(message)
        self.status, self.reason, self.field, self.advice = status, reason, field, advice

    def __reduce__(self):
        return type(self), (str(self), self.status, self.reason, self.field, self.advice)
