"""docs/examples/executor.py with a slow callback for offers, and a handler that notes each start in a file.

SIGUSR1 makes it act as if the server had ended its log-in.
"""
import asyncio, os, signal, time

import executor


async def mark(run):
    with open(os.environ["MARKS"], "a") as file:
        file.write(f"{run.ref['run_id']}/{run.attempt}/{executor.INSTANCE}/{time.time():.3f}\n")


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
