"""docs/examples/executor.py as an instance of TestFreezes: with one more handler, and 50 ms of delay before it reads an offer.

The handler appends "run attempt pid checked entered monotonic" to the instance's file before it does anything else. The last
three are nanoseconds: the wall clock at the last check of the fence, and both clocks in the handler's first instruction.
"""
import asyncio, os, sys, time

sys.path.insert(0, os.environ["E2E_EXAMPLES"])
import executor

NOTES = os.open(os.environ["E2E_NOTES"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
DELAY, checked = 0.05, 0


async def work(run):
    entered, monotonic = time.time_ns(), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    ref = run.ref["run_id"], run.ref["attempt"]
    os.write(NOTES, f"{ref[0]} {ref[1]} {os.getpid()} {checked or entered} {entered} {monotonic}\n".encode())
    await asyncio.sleep(int(run.param) / 1000)

executor.HANDLERS["work"] = work


# The executor reads its clocks for the check directly before it calls the handler, without another task in between. So the
# last reading before the handler's first instruction is that of the check.
def noted(clocks):
    def read():
        global checked
        checked = time.time_ns()
        return clocks()
    return read

if hasattr(executor, "clocks"):
    executor.clocks = noted(executor.clocks)


class Slow(executor.Executor):
    async def offers(self, msg):
        await asyncio.sleep(DELAY)
        await super().offers(msg)

asyncio.run(Slow().run())
