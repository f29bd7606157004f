"""An executor of XXL-JOB with the handlers that tests need. Arguments: admin address, app name, access token, port, directory of logs. It ends
when its standard input ends."""

import asyncio
import os
import sys
import threading
import time

from pyxxl import ExecutorConfig, PyxxlRunner
from pyxxl.ctx import g

admin, app_name, token, port, logs = sys.argv[1:]


def until_stdin_ends():
    while os.read(0, 1024):
        pass
    os._exit(0)


threading.Thread(target=until_stdin_ends, daemon=True).start()

app = PyxxlRunner(ExecutorConfig(
    xxl_admin_baseurl=admin + "/api/", executor_app_name=app_name, access_token=token, executor_listen_host="127.0.0.1",
    executor_listen_port=int(port), log_local_dir=logs, executor_log_path=os.path.join(logs, "executor.log"),
))


def param():
    return g.xxl_run_data.executorParams


@app.register(name="demo")
async def demo():
    g.logger.info("param %s" % param())
    g.logger.info("second line")
    return "done"


@app.register(name="echo")
async def echo():
    return "%s %d/%d" % (param(), g.xxl_run_data.broadcastIndex, g.xxl_run_data.broadcastTotal)


@app.register(name="fail")
async def fail():
    raise ValueError("no such month")


@app.register(name="sleep")
async def sleep():
    await asyncio.sleep(int(param()))
    return "slept"


@app.register(name="stubborn")
def stubborn():
    seconds, file = param().split(" ")
    time.sleep(int(seconds))
    with open(file, "a") as f:
        f.write("done\n")


@app.register(name="lines")
async def lines():
    count, seconds = param().split(" ")
    for i in range(1, int(count) + 1):
        g.logger.info("line %d" % i)
    await asyncio.sleep(int(seconds))
    g.logger.info("the end")


app.run_executor()
