"""turns.py SECONDS SLICE CLUSTER CLUSTER: lets two servers run in turns, each with the pgbench that is connected to it.

While one runs, every process of the other one is stopped. So both have all processors for the same time, and a slow moment of the machine, which is
much longer than a slice, meets both. A cluster is a directory with data/postmaster.pid and socket, as cluster.sh makes it.
Never does: stop a process that is neither of these servers nor a client of them.
"""
import os
import signal
import sys
import time


def words_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as words:
        return words.read().decode(errors="replace").split("\0")


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def processes_of(cluster):
    """The server, its processes, and its pgbench; and what started that pgbench, which stops with it (runuser does)."""
    with open(f"{cluster}/data/postmaster.pid") as lines:
        server = int(lines.readline())
    found, starters = [server], []
    clients = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            names = [os.path.basename(word) for word in words_of(pid)]
            if "pgbench" in names and f"{cluster}/socket" in words_of(pid):
                is_client = names[0] == "pgbench"
                (found if is_client else starters).append(int(pid))
                clients += is_client
            elif parent_of(pid) == server:
                found.append(int(pid))
        except OSError:
            continue  # It has ended.
    if not clients:
        sys.exit(f"no pgbench runs in {cluster}")
    return found, starters


def send(signal_number, processes):
    for pid in processes:
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            continue


def main():
    seconds, piece = map(float, sys.argv[1:3])
    (first, first_starters), (second, second_starters) = map(processes_of, sys.argv[3:5])
    end = time.monotonic() + seconds
    try:
        send(signal.SIGSTOP, second)
        while time.monotonic() < end:
            for running, waiting in ((first, second), (second, first)):
                time.sleep(piece)
                send(signal.SIGSTOP, running)
                send(signal.SIGCONT, waiting)
    finally:
        send(signal.SIGCONT, first + second + first_starters + second_starters)


main()
