"""docs/examples/executor.py with the handler "work" of the fault test: it does what its param says and writes notes like the
executors in Go. The start of a call is the instant at which the executor last read its clocks before the call.
"""
import asyncio, json, os, random, time

import executor

NOTES = os.open(os.environ["E2E_NOTES"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
BOOT = f"{os.getpid()}-{time.time_ns()}"
checked, read_clocks = 0, executor.clocks


# The executor reads its clocks for the check directly before it calls the handler, without another task in between.
def clocks():
    global checked
    checked = time.time_ns()
    return read_clocks()


executor.clocks = clocks


def note(kind, run, at, outcome=""):
    line = f"{kind} {run.ref['run_id']} {run.attempt} {BOOT} {at} {outcome}".rstrip()
    os.write(NOTES, (line + "\n").encode())


async def work(run):
    note("S", run, checked or time.time_ns())
    todo = json.loads(run.param)
    luck = random.Random(f"{run.ref['run_id']} {run.attempt}")
    try:
        await asyncio.sleep(luck.uniform(todo["ms"], todo.get("ms_max", todo["ms"])) / 1000)
    except asyncio.CancelledError:
        note("E", run, time.time_ns(), "cancelled")
        raise
    if luck.randrange(100) < todo.get("fail", 0):
        note("E", run, time.time_ns(), "error")
        raise ValueError("bad luck")
    note("E", run, time.time_ns(), "ok")
    return run.ref["run_id"]


executor.HANDLERS["work"] = work
asyncio.run(executor.Executor().run())
