"""Runs a command and measures it with everything that it leaves running in the background.

    whole_time.py FILE COMMAND ...

Writes `SECONDS CPU` to FILE: the time until the command ended, and the processor time of all processes that it started,
also of those that work on after it. It waits for them, so that they cost nobody else anything.
"""

import ctypes
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def main():
    path, command = sys.argv[1], sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    begun = time.monotonic()
    status = subprocess.Popen(command).wait()
    seconds = time.monotonic() - begun
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(path, "w", encoding="ascii") as out:
        print(f"{seconds:.3f} {used.ru_utime + used.ru_stime:.3f}", file=out)
    return status if status >= 0 else 128 - status


sys.exit(main())
