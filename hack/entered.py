#!/usr/bin/env python3
"""Prints which functions of a running program are entered, in the order they first are.

usage: hack/entered.py MAP SECONDS PID
       hack/entered.py MAP SECONDS PROGRAM [ARGUMENT...]   starts it, follows it from its first instruction on, and ends it (SIGTERM)

MAP is LLD's map of the program as it was linked (-Map). A breakpoint stands at every function until it is met once, so the program
stops for some microseconds at each and runs as ever afterwards. It owns the program's threads while it runs (ptrace(2)) and lets go of
them however it ends; it is never used on anything but a cluster of hack/up.
"""
import ctypes
import os
import re
import signal
import struct
import sys
import time

SEIZE, INTERRUPT, CONT, DETACH, GETREGS, SETREGS = 0x4206, 0x4207, 7, 17, 12, 13
FOLLOW_THREADS, STOP_AT_EXEC = 1 << 3, 1 << 4  # PTRACE_O_TRACECLONE, PTRACE_O_TRACEEXEC
EXECUTED = 4  # PTRACE_EVENT_EXEC
ALL_THREADS = 0x40000000  # __WALL
BREAKPOINT = b"\xcc"

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class Registers(ctypes.Structure):
    """struct user_regs_struct of x86-64."""

    _fields_ = [
        (name, ctypes.c_ulonglong)
        for name in "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
        "fs_base gs_base ds es fs gs".split()
    ]


def ptrace(request, thread, data=0):
    if libc.ptrace(request, thread, 0, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace({request}) of thread {thread}: {os.strerror(ctypes.get_errno())}")


def text_of(path):
    """Address and size of a program's section .text (elf(5))."""
    with open(path, "rb") as file:
        header = file.read(64)
        offset, (size, count, names) = struct.unpack_from("<Q", header, 40)[0], struct.unpack_from("<3H", header, 58)
        file.seek(offset)
        sections = [struct.unpack_from("<2I4Q", file.read(size)) for _ in range(count)]
        file.seek(sections[names][4])
        texts = file.read(sections[names][5])
    name_is = lambda section: texts[section[0] :].startswith(b".text\0")
    return next((section[3], section[5]) for section in sections if name_is(section))


def functions(path, text):
    """Names by address in the file, of what the map says is in .text and has a length; the map has to be of a program with that .text."""
    line_of_map = re.compile(r"\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+ (\s*)(\S.*)")
    found, in_text = {}, False
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = line_of_map.match(line)
            if not match:
                continue
            address, size, indent, name = int(match[1], 16), int(match[2], 16), len(match[3]), match[4]
            if indent == 0:
                in_text = name == ".text"
                if in_text and (address, size) != text:
                    sys.exit(f"{path} is the map of another build")
            elif in_text and indent == 16 and size:
                # Where several functions were folded into one, each name leads there.
                found.setdefault(address, name)
    return found


class Program:
    """A program whose threads are ours while the block runs."""

    def __init__(self, pid, names):
        self.pid, self.names = pid, names
        self.threads, self.entered, self.seen = set(), [], set()
        self.saved = {}

    @classmethod
    def started(cls, command, names):
        """A program that has not done anything yet."""
        ready, go = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(ready, 1)
            # What we print is not to be mixed with what it does.
            os.dup2(2, 1)
            os.execv(command[0], command)
        program = cls(pid, names)
        ptrace(SEIZE, pid, FOLLOW_THREADS | STOP_AT_EXEC)
        program.threads.add(pid)
        os.close(go)
        os.waitpid(pid, ALL_THREADS)
        return program

    def __enter__(self):
        if not self.threads:
            for thread in map(int, os.listdir(f"/proc/{self.pid}/task")):
                ptrace(SEIZE, thread, FOLLOW_THREADS)
                self.threads.add(thread)
                ptrace(INTERRUPT, thread)
            for thread in self.threads:
                os.waitpid(thread, ALL_THREADS)
        self.put_in()
        for thread in self.threads:
            ptrace(CONT, thread)
        return self

    def put_in(self):
        """Breakpoints at all functions not met yet, in the memory it has now."""
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        executable = os.readlink(f"/proc/{self.pid}/exe")
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as maps:
            self.base = next(int(line.split("-")[0], 16) for line in maps if executable in line)
        for address in self.names.keys() - self.seen:
            self.saved[address] = os.pread(self.memory, 1, self.base + address)
            os.pwrite(self.memory, BREAKPOINT, self.base + address)

    def step_back(self, thread):
        """Puts a thread that ran into a breakpoint back to before it; the function's address in the file, None if it did not."""
        registers = Registers()
        ptrace(GETREGS, thread, ctypes.addressof(registers))
        address = registers.rip - 1 - self.base
        if address not in self.saved:
            return None
        registers.rip -= 1
        ptrace(SETREGS, thread, ctypes.addressof(registers))
        return address

    def take_out(self, address):
        os.pwrite(self.memory, self.saved[address], self.base + address)

    def stopped(self, thread, status):
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            self.threads.discard(thread)
            return
        self.threads.add(thread)
        number, event = os.WSTOPSIG(status), status >> 16
        if event:
            number = 0
            if event == EXECUTED:
                # Ours begin by running themselves anew, with the allocator's settings: nothing of their memory stays.
                os.close(self.memory)
                self.threads = {thread}
                self.put_in()
        elif number == signal.SIGTRAP:
            address = self.step_back(thread)
            if address is not None:
                number = 0
                # Several threads may have run into it at once.
                if address not in self.seen:
                    self.seen.add(address)
                    self.entered.append(address)
                    self.take_out(address)
        ptrace(CONT, thread, number)

    def follow(self, seconds):
        end = time.monotonic() + seconds
        while self.threads and time.monotonic() < end:
            thread, status = os.waitpid(-1, ALL_THREADS | os.WNOHANG)
            if thread:
                self.stopped(thread, status)
            else:
                time.sleep(0.0005)

    def __exit__(self, *_):
        if not self.threads:
            return
        for address in self.saved.keys() - self.seen:
            self.take_out(address)
        # Who ran into one meanwhile is put back.
        self.follow(0.5)
        for thread in self.threads:
            ptrace(INTERRUPT, thread)
            _, status = os.waitpid(thread, ALL_THREADS)
            if os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTRAP and not status >> 16:
                self.step_back(thread)
            ptrace(DETACH, thread)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    path, seconds, what = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    runs = len(what) == 1 and what[0].isdigit()
    names = functions(path, text_of(f"/proc/{what[0]}/exe" if runs else what[0]))
    if not names:
        sys.exit(f"{path}: no functions are in it: is it a map of LLD's?")
    # An end asked for is an end in order: a program with breakpoints and nobody who answers for them dies.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with Program(int(what[0]), names) if runs else Program.started(what, names) as program:
        program.follow(seconds)
    if not runs and program.threads:
        os.kill(program.pid, signal.SIGTERM)
        os.waitpid(program.pid, 0)
    for address in program.entered:
        print(names[address])


main()
