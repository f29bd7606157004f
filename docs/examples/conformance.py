#!/usr/bin/env python3
"""Runs executor.py with the handlers of docs/conformance.md: belfry conformance --executor 'exec python3 docs/examples/conformance.py'"""
import asyncio, json, time

import executor


def handler(handle):
    async def started(run):
        param = json.loads(run.param)
        with open(param["file"], "a") as f:  # one write, because the command reads the file meanwhile
            f.write(f"{run.ref['run_id']} {run.attempt} {int(time.time() * 1000)}\n")
        return await handle(run, param)
    return started

def text(param):
    return param.get("text", "") + "é" * (param.get("bytes", 0) // 2)

async def sleep(run, param):
    await asyncio.sleep(param.get("ms", 0) / 1000)

async def fail(run, param):
    raise ValueError(text(param))

async def output(run, param):
    return text(param)

async def echo(run, param):
    return json.dumps({"attempt": run.attempt, "shard_index": run.shard["index"], "shard_total": run.shard["total"],
                       "parent_output": (run.parent or {}).get("output", ""), "text": param.get("text", "")})

async def log(run, param):
    for _ in range(param.get("lines", 0)):
        run.log("x" * param.get("bytes", 0))


executor.HANDLERS |= {f"conformance_{h.__name__}": handler(h) for h in (sleep, fail, output, echo, log)}

if __name__ == "__main__":
    asyncio.run(executor.Executor().run())
