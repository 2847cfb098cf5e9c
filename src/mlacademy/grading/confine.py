"""Limits that a process puts on itself before it runs a stranger's code.

Everywhere: memory, core dumps and file sizes (``setrlimit``). On Linux also, as far as the kernel allows: no new
processes and no network (seccomp), no writing to files (Landlock). Threads stay allowed. What a kernel lacks is left
out; ``bubblewrap`` (``mlacademy.grading.sandbox``) is the outer wall when somebody else's answers are graded.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys

MEMORY = 2 << 30
"""How much address space an answer may add to what the worker has, in bytes."""

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SYSCALLS = {  # clone, clone3, socket, then those refused outright: fork, vfork, execve, execveat
    "x86_64": (56, 435, 41, (57, 58, 59, 322)),
    "aarch64": (220, 435, 198, (221, 281)),
}
_CLONE_THREAD = 0x00010000
_LANDLOCK = (444, 445, 446)  # create_ruleset, add_rule, restrict_self: the same numbers on every architecture
_WRITE_FILE = 1 << 1


def confine(memory: int = MEMORY) -> None:
    """Apply every limit this system has to the calling process; there is no way back."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _read_only_files(libc)
        _no_processes_no_network(libc)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _read_only_files(libc: ctypes.CDLL) -> None:
    """Refuse every change to the file system, except writing to /dev/null."""
    create, add_rule, restrict = _LANDLOCK
    version = libc.syscall(create, None, 0, 1)
    if version < 1:
        return
    changes = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # remove and make of every kind
    changes |= (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)  # refer, truncate
    attributes = ctypes.create_string_buffer(struct.pack("<Q", changes))
    rules = libc.syscall(create, attributes, 8, 0)
    if rules < 0:
        return
    null = os.open("/dev/null", os.O_RDONLY)
    libc.syscall(add_rule, rules, 1, ctypes.create_string_buffer(struct.pack("<Qi", _WRITE_FILE, null)), 0)
    libc.syscall(restrict, rules, 0)
    os.close(null)
    os.close(rules)


def _no_processes_no_network(libc: ctypes.CDLL) -> None:
    """A seccomp filter: threads yes, processes and programs no, internet sockets no."""
    machine = platform.machine()
    if machine not in _SYSCALLS:
        return
    clone, clone3, socket, refused = _SYSCALLS[machine]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, eperm, enosys = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
    tests = [  # (opcode, operand, verdict when true)
        (equal, number, eperm) for number in refused
    ] + [(equal, clone3, enosys), (at_least, 0x40000000, eperm)]
    program = [(load, 0, 0, 4), (equal, 1, 0, _AUDIT_ARCH[machine]), (give, 0, 0, eperm), (load, 0, 0, 0)]
    for code, operand, verdict in tests:
        program += [(code, 0, 1, operand), (give, 0, 0, verdict)]
    program += [  # clone without CLONE_THREAD is a new process
        (equal, 0, 4, clone),
        (load, 0, 0, 16),
        (any_bit, 1, 0, _CLONE_THREAD),
        (give, 0, 0, eperm),
        (give, 0, 0, allow),
    ]
    program += [  # AF_INET is 2, AF_INET6 is 10
        (equal, 0, 4, socket),
        (load, 0, 0, 16),
        (equal, 1, 0, 2),
        (equal, 0, 1, 10),
        (give, 0, 0, eperm),
    ]
    program.append((give, 0, 0, allow))
    packed = b"".join(struct.pack("<HBBI", *step) for step in program)
    filter_ = ctypes.create_string_buffer(packed)
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(filter_)))
    libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0)
