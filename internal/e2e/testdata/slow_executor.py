"""docs/examples/executor.py with a slow callback for offers, and a handler that notes each start in a file: the instant at which
the executor last read its clocks before the call. No executor can exclude a freeze between that check and the call.

SIGUSR1 makes it act as if the server had ended its log-in.
"""
import asyncio, os, signal, time

import executor


read_clocks, checked = executor.clocks, 0.0


def clocks():
    global checked
    reading = read_clocks()
    checked = reading[0]
    return reading


executor.clocks = clocks


async def mark(run):
    at = checked  # nothing runs between the check and this line
    with open(os.environ["MARKS"], "a") as file:
        file.write(f"{run.ref['run_id']}/{run.attempt}/{executor.INSTANCE}/{at:.3f}\n")


class Slow(executor.Executor):
    async def offers(self, msg):
        await asyncio.sleep(0.05)  # further messages wait
        await super().offers(msg)

    def judge(self, *offer):
        verdict = super().judge(*offer)
        time.sleep(0.01)  # blocks the event loop, so that accepted attempts wait until the whole message is judged
        return verdict

    async def run(self):
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGUSR1, lambda: asyncio.ensure_future(self.nc._process_err("'user authentication expired'")))
        await super().run()


executor.HANDLERS["mark"] = mark
asyncio.run(Slow().run())
