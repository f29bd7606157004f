#!/usr/bin/env python3
"""A Belfry executor in Python, by "A minimal executor" of docs/wire.md: pip install nats-py==2.9.0

It keeps results in memory alone: killed, it loses those that are not settled yet, and Belfry names their runs lost.
"""
import asyncio, json, os, secrets, signal, socket, time
from datetime import datetime, timezone

import nats

GROUP, BOOT, CAPACITY, LEASE, REMEMBER = os.environ["BELFRY_GROUP"], secrets.token_hex(8), 16, 10, 60
INSTANCE = f"python-{BOOT}"  # new at each start, so that no two processes share it
ME, KEY, STARTED = {"v": 1, "instance": INSTANCE, "boot_id": BOOT}, f"$KV.belfry_instances.{GROUP}.{INSTANCE}", time.time()


async def greet(run):
    run.log(f"greeting {run.param or 'nobody'}")
    return f"hello {run.param}, attempt {run.attempt}, shard {run.shard['index']} of {run.shard['total']}"

async def nap(run):
    await asyncio.sleep(float(run.param or 1))

async def stumble(run):
    raise ValueError("stumbled over " + run.param)

HANDLERS = {"greet": greet, "nap": nap, "stumble": stumble}


def instant(t):
    return datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z") if t else None

def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

def clip(text, most):  # bytes of UTF-8, without NUL
    return text.replace("\0", "\ufffd").encode(errors="replace")[:most].decode(errors="ignore")

async def wait(event, most):
    try:
        await asyncio.wait_for(event.wait(), most)
    except asyncio.TimeoutError:
        pass
    event.clear()


class Run:
    """An attempt, for as long as it is remembered; status is accepted, running, done, refused or barred."""
    def __init__(self, ref, bind, status, refusal=""):
        self.ref, self.bind, self.status, self.refusal = {"run_id": ref["run_id"], "attempt": ref["attempt"]}, bind, status, refusal
        self.attempt, self.param, self.shard, self.lines = ref["attempt"], ref.get("param", ""), ref.get("shard"), []
        self.started = self.result = self.task = None
        self.killed, self.again, self.pause, self.settled, self.forget = "", 0, 5, False, float("inf")

    def log(self, text, level="info"):
        self.lines.append({"n": len(self.lines) + 1, "at": instant(time.time()), "level": level, "text": clip(text, 16 << 10)})

    def told(self):
        result = {"result": self.result} if self.result and not self.settled else {}
        return self.ref | {"status": self.status, "started_at": instant(self.started)} | result


class Executor:
    def __init__(self):
        self.runs, self.used, self.changes, self.draining = {}, 0, 0, False
        self.confirmed, self.renewed, self.beat, self.send = None, 0, asyncio.Event(), asyncio.Event()

    def load(self, change=0):
        self.used, self.changes = self.used + change, self.changes + abs(change)
        return {"capacity": CAPACITY, "running": self.used, "seq": self.changes}

    def leased(self):
        return self.confirmed and max(time.time() - self.confirmed[0], time.monotonic() - self.confirmed[1]) < LEASE

    async def publish(self, subject, body, timeout=5, headers=None):
        """Returns whether the server has stored it."""
        try:
            return "seq" in json.loads((await self.nc.request(subject, body and json.dumps(body).encode(), timeout=timeout, headers=headers)).data)
        except (nats.errors.Error, asyncio.TimeoutError) as e:
            print(subject, repr(e), flush=True)

    async def heartbeat(self):
        while True:
            sent = time.time(), time.monotonic()
            if await self.publish(KEY, ME | self.load() | {
                    "group": GROUP, "handlers": sorted(HANDLERS), "script_languages": [], "labels": {}, "version": "example",
                    "host": socket.gethostname(), "started_at": instant(STARTED), "draining": self.draining}, timeout=2):
                if not self.leased():
                    self.renewed = time.time()
                self.confirmed = sent
            await wait(self.beat, 3)

    async def offers(self, msg):
        m, received = json.loads(msg.data), time.time()
        if m["v"] == 1:
            refusals = [self.judge(o, received) if m["boot_id"] == BOOT else "stale" for o in m["offers"]]
            await msg.respond(json.dumps(ME | {"load": self.load(), "verdicts": [
                {"run_id": o["run_id"], "attempt": o["attempt"], "verdict": "refused" if why else "accepted", "reason": why}
                for o, why in zip(m["offers"], refusals)]}).encode())

    def judge(self, o, received):
        """Returns why an offer is refused; empty: it is accepted."""
        run, now, bound = self.runs.get((o["run_id"], o["attempt"])), seconds(o["now"]), seconds(o["bound_at"])
        if run and run.task:
            if not run.result or run.result["outcome"] != "unstarted":
                run.bind = max(run.bind, o["bind"])
                return ""
            if not run.settled or o["bind"] <= run.bind:
                return "stale"
        elif run and o["bind"] <= run.bind:  # refused, or barred
            return run.refusal if o["bind"] == run.bind else "stale"
        why = ("stale" if now - bound > 10 or bound - (now - received) < self.renewed else "draining" if self.draining else
               "lease" if not self.leased() else "unsupported" if o.get("script") else "no_handler" if o.get("handler") not in HANDLERS else
               "full" if self.used >= CAPACITY else "")
        self.runs[o["run_id"], o["attempt"]] = run = Run(o, o["bind"], "refused" if why else "accepted", why)
        if why:
            run.forget = time.monotonic() + REMEMBER
        else:
            self.load(+1)
            run.task = asyncio.ensure_future(self.work(run, o, seconds(o["due_at"]) - now))
            run.end = asyncio.ensure_future(self.finish(run))
        return why

    async def work(self, run, o, early):
        await asyncio.sleep(max(early, 0))
        if self.draining or not self.leased():
            raise asyncio.CancelledError
        run.status, run.started = "running", time.time()
        return await asyncio.wait_for(HANDLERS[o["handler"]](run), o["timeout_ms"] / 1000 or None)

    async def finish(self, run):
        await asyncio.wait([run.task])
        error = None if run.task.cancelled() else run.task.exception()
        if not run.started:
            outcome, reason = "unstarted", run.killed
        elif run.task.cancelled():
            outcome, reason = "failed" if run.killed == "timeout" else "cancelled", run.killed or "killed"
        elif error:
            outcome, reason = "failed", "timeout" if isinstance(error, asyncio.TimeoutError) else "handler_error"
        else:
            outcome, reason = "succeeded", ""
        for i in range(0, len(run.lines), 15):  # 15 of 16 KiB stay below 256 KiB; lines are tried once
            await self.publish(f"belfry.v1.log.{GROUP}", {"v": 1, "instance": INSTANCE} | run.ref | {"lines": run.lines[i:i + 15]})
        run.status, run.result = "done", run.ref | {
            "instance": INSTANCE, "boot_id": BOOT, "bind": run.bind, "outcome": outcome, "reason": reason,
            "message": clip(repr(error), 16 << 10) if error else "",
            "output": clip(str(run.task.result() or ""), 64 << 10) if outcome == "succeeded" else "", "retry_after_ms": 0, "permanent": False,
            "started_at": instant(run.started), "finished_at": instant(time.time()), "last_line": len(run.lines)}
        self.load(-1)
        self.send.set()

    async def report(self):
        while True:
            await wait(self.send, 1)
            now = time.monotonic()
            self.runs = {k: r for k, r in self.runs.items() if r.forget > now}
            due = [r for r in self.runs.values() if r.result and not r.settled and r.again <= now][:10]  # 10 of 80 KiB: below 1 MiB
            for r in due:
                r.again, r.pause = now + r.pause, min(2 * r.pause, 60)
            if due:
                await self.publish(f"belfry.v1.result.{GROUP}", {"v": 1, "load": self.load(), "results": [r.result for r in due]})
                self.send.set()  # there may be more

    async def control(self, msg):
        m = json.loads(msg.data)
        op, refs, reply = m["op"], m.get("runs") or [], ME | {"load": self.load()}
        if m["v"] != 1:
            return
        if op == "drain":
            self.drain()
        elif op not in ("ping", "status", "kill", "settled"):
            reply["error"] = f"unknown operation {op}"
        for ref in refs:
            run = self.runs.get((ref["run_id"], ref["attempt"]))
            if op == "settled" and run and run.result and ref.get("boot_id", BOOT) == BOOT:
                run.settled, run.forget = True, time.monotonic() + REMEMBER
            if op == "kill" and run and run.task:
                run.killed = m.get("reason") or "killed"
                run.task.cancel()  # nothing, where it has ended
            elif op == "kill":
                self.runs[ref["run_id"], ref["attempt"]] = run = Run(ref, float("inf"), "barred")
                run.forget = time.monotonic() + REMEMBER
        if op in ("status", "kill"):
            found = [(ref, self.runs.get((ref["run_id"], ref["attempt"]))) for ref in refs]
            reply["statuses"] = [run.told() if run else ref | {"status": "unknown"} for ref, run in found]
        await msg.respond(json.dumps(reply).encode())

    def drain(self):
        self.draining = True
        self.beat.set()
        for run in self.runs.values():
            if run.status == "accepted":
                run.task.cancel()

    async def reconnected(self):
        self.beat.set(), self.send.set()
        for run in self.runs.values():
            run.again = 0

    async def run(self):
        self.nc = await nats.connect(os.environ.get("BELFRY_NATS_URL", "nats://127.0.0.1:4222"), token=os.environ["BELFRY_TOKEN"],
                                     inbox_prefix=f"_INBOX_{GROUP}".encode(), pending_size=0, max_reconnect_attempts=-1,
                                     reconnected_cb=self.reconnected)
        await self.nc.subscribe(f"belfry.v1.trigger.{GROUP}.{INSTANCE}", cb=self.offers)
        await self.nc.subscribe(f"belfry.v1.control.{GROUP}.{INSTANCE}", cb=self.control)
        await self.nc.flush()
        loops, stop = [asyncio.ensure_future(self.heartbeat()), asyncio.ensure_future(self.report())], asyncio.Event()
        for s in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(s, stop.set)
        await stop.wait()
        self.drain()
        for most in 30, 10:  # seconds: first let them end, then end them
            until = time.monotonic() + most
            while time.monotonic() < until and any(r.task and not r.settled for r in self.runs.values()):
                await asyncio.sleep(0.1)
            for r in self.runs.values():
                if r.task:
                    r.task.cancel()
        for loop in loops:
            loop.cancel()
        await self.publish(KEY, b"", headers={"KV-Operation": "DEL"})
        await self.nc.close()


if __name__ == "__main__":
    asyncio.run(Executor().run())
