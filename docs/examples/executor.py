#!/usr/bin/env python3
"""A Belfry executor in Python, written from docs/wire.md: pip install nats-py==2.9.0

It heartbeats, answers offers, runs handlers, reports results until they are settled, ships logs, and obeys kills and
drains. It keeps results in memory alone: one that ends by force loses those not yet settled, and Belfry names their
runs lost. docs/wire.md, "Results", says what a spool on disk must do.
"""
import asyncio, json, os, secrets, signal, socket, time
from datetime import datetime, timezone

import nats
from nats.errors import NoRespondersError, TimeoutError as NoAnswer

GROUP, INSTANCE = os.environ["BELFRY_GROUP"], os.environ.get("BELFRY_INSTANCE", "python-1")
BOOT, CAPACITY, LEASE, STARTED = secrets.token_hex(8), 16, 10.0, time.time()
ME = {"v": 1, "instance": INSTANCE, "boot_id": BOOT}
HANDLERS = {}


def handler(fn):
    HANDLERS[fn.__name__] = fn
    return fn


@handler
async def greet(run):
    run.log(f"greeting {run.param or 'nobody'}")
    return f"hello {run.param}, attempt {run.attempt}, shard {run.shard['index']} of {run.shard['total']}"


@handler
async def nap(run):
    run.log("sleeping")
    await asyncio.sleep(float(run.param or 1))


@handler
async def stumble(run):
    raise ValueError("stumbled over " + run.param)


def instant(t):
    return datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z") if t else None


def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def clip(text, most):  # bytes of UTF-8, without NUL
    return text.replace("\0", "\ufffd").encode()[:most].decode(errors="ignore")


class Run:
    """One attempt, as long as it is remembered. status: accepted, running, done, refused or barred."""

    def __init__(self, offer, status, reason=""):
        self.run_id, self.attempt, self.bind = offer["run_id"], offer["attempt"], offer.get("bind", 0)
        self.status, self.reason, self.task, self.started, self.result = status, reason, None, None, None
        self.killed, self.settled, self.forget, self.lines = "", False, None, []
        self.handler, self.param, self.shard = offer.get("handler"), offer.get("param", ""), offer.get("shard") or {"index": 0, "total": 1}
        self.timeout, self.wait = offer.get("timeout_ms", 0) / 1000, 0.0
        if "due_at" in offer:  # both instants are the database's
            self.wait = seconds(offer["due_at"]) - seconds(offer["now"])

    def log(self, text, level="info"):
        self.lines.append({"n": len(self.lines) + 1, "at": instant(time.time()), "level": level, "text": clip(text, 16 << 10)})


class Executor:
    def __init__(self, nc):
        self.nc, self.runs, self.draining, self.used, self.changes = nc, {}, False, 0, 0
        self.key, self.revision, self.usurped, self.unanswered = f"$KV.belfry_instances.{GROUP}.{INSTANCE}", None, False, -LEASE
        self.confirmed, self.renewed, self.wake, self.beat = None, 0.0, asyncio.Event(), asyncio.Event()

    def leased(self):
        return self.confirmed is not None and max(time.time() - self.confirmed[0], time.monotonic() - self.confirmed[1]) < LEASE

    def load(self):
        return {"capacity": CAPACITY, "running": self.used, "seq": self.changes}

    def slot(self, change):
        self.used, self.changes = self.used + change, self.changes + 1

    # Heartbeat and lease
    async def send_beat(self, payload, headers=None):
        reply = json.loads((await self.nc.request(self.key, payload, timeout=2, headers=headers)).data)
        if "error" in reply:
            return None, reply["error"].get("err_code")
        self.revision = reply["seq"]
        return reply["seq"], None

    async def heartbeat(self):
        while True:
            sent, condition = (time.time(), time.monotonic()), {"Nats-Expected-Last-Subject-Sequence": str(self.revision)}
            body = json.dumps(ME | self.load() | {
                "group": GROUP, "handlers": sorted(HANDLERS), "script_languages": [], "labels": {}, "version": "example",
                "host": socket.gethostname(), "started_at": instant(STARTED), "draining": self.draining}).encode()
            try:
                free, self.unanswered = self.revision is None or time.monotonic() - self.unanswered < LEASE, -LEASE
                seq, code = await self.send_beat(body, None if free else condition)
                if code in (10071, 10164):
                    seq, code = await self.send_beat(body, {"Nats-Expected-Last-Subject-Sequence": "0"})
                if self.usurped != (code in (10071, 10164)):
                    self.usurped = not self.usurped
                    print(f"another process holds the name {INSTANCE}" if self.usurped else "the name is ours again", flush=True)
                if seq:
                    if self.confirmed and not self.leased():
                        self.renewed = time.time()
                    self.confirmed = sent
            except NoAnswer:  # it may have been stored all the same
                self.unanswered = time.monotonic()
            except Exception as e:
                print("heartbeat:", repr(e), flush=True)
            try:
                await asyncio.wait_for(self.beat.wait(), 3)
            except asyncio.TimeoutError:
                pass
            self.beat.clear()

    # Offers
    async def offers(self, msg):
        m, received = json.loads(msg.data), time.time()
        if m.get("v") != 1 or self.usurped and m["boot_id"] != BOOT:
            return
        verdicts = []
        for o in m["offers"]:
            why = "stale" if m["boot_id"] != BOOT else self.judge(o, received)
            verdicts.append({"run_id": o["run_id"], "attempt": o["attempt"]} | (
                {"verdict": "refused", "reason": why} if why else {"verdict": "accepted"}))
        await msg.respond(json.dumps(ME | {"load": self.load(), "verdicts": verdicts}).encode())

    def judge(self, o, received):
        key = (o["run_id"], o["attempt"])
        known, bound, ahead = self.runs.get(key), seconds(o["bound_at"]), seconds(o["now"]) - received
        if known and known.status in ("accepted", "running", "done"):
            handed_back = known.result and known.result["outcome"] == "unstarted"
            if not handed_back:
                known.bind = max(known.bind, o["bind"])
                return ""
            if not known.settled or o["bind"] <= known.bind:
                return "stale"
        if known and known.status == "barred":
            return "stale"
        if known and known.status == "refused" and o["bind"] <= known.bind:
            return known.reason if o["bind"] == known.bind else "stale"
        why = ("stale" if seconds(o["now"]) - bound > 10 or bound - ahead < self.renewed else "draining" if self.draining
               else "lease" if not self.leased() else "unsupported" if o.get("script") else "no_handler" if o.get("handler") not in HANDLERS
               else "full" if self.used >= CAPACITY else "")
        self.runs[key] = run = Run(o, "refused" if why else "accepted", why)
        if why:
            run.forget = time.monotonic() + 60
        else:
            self.slot(+1)
            run.task = asyncio.create_task(self.execute(run))
        return why

    async def execute(self, run):
        outcome, reason, message, output, permanent = "succeeded", "", "", "", False
        try:
            if run.wait > 0:
                await asyncio.sleep(run.wait)
            if self.draining or not self.leased():
                raise asyncio.CancelledError
            run.status, run.started = "running", time.time()
            work = HANDLERS[run.handler](run)
            output = str(await (asyncio.wait_for(work, run.timeout) if run.timeout else work) or "")
        except asyncio.CancelledError:
            outcome, reason = ("cancelled", run.killed or "killed") if run.started else ("unstarted", run.killed)
            if run.killed == "timeout" and run.started:
                outcome = "failed"
        except asyncio.TimeoutError:
            outcome, reason, message = "failed", "timeout", f"longer than {run.timeout:g} s"
        except Exception as e:
            outcome, reason, message, permanent = "failed", "handler_error", repr(e), getattr(e, "permanent", False)
        run.result = ME | {
            "run_id": run.run_id, "attempt": run.attempt, "bind": run.bind, "outcome": outcome, "reason": reason,
            "message": clip(message, 16 << 10), "output": clip(output, 64 << 10), "retry_after_ms": 0, "permanent": permanent,
            "started_at": instant(run.started), "finished_at": instant(time.time()), "last_line": len(run.lines)}
        del run.result["v"]
        run.status, run.again, run.pause = "done", 0.0, 5.0
        for i in range(0, len(run.lines), 15):  # 15 lines of 16 KiB stay below 256 KiB
            await self.publish("log", ME | {"run_id": run.run_id, "attempt": run.attempt, "lines": run.lines[i:i + 15]})
        self.slot(-1)
        self.wake.set()

    async def publish(self, kind, body):
        """Returns whether the server has it. Log lines are tried once."""
        body.pop("boot_id", None)
        try:
            return "seq" in json.loads((await self.nc.request(f"belfry.v1.{kind}.{GROUP}", json.dumps(body).encode(), timeout=5)).data)
        except (NoAnswer, NoRespondersError, nats.errors.Error):
            return False

    async def report(self):
        while True:
            try:
                await asyncio.wait_for(self.wake.wait(), 1)
            except asyncio.TimeoutError:
                pass
            self.wake.clear()
            now = time.monotonic()
            self.runs = {k: r for k, r in self.runs.items() if r.forget is None or r.forget > now}
            due = [r for r in self.runs.values() if r.result and not r.settled and r.again <= now][:10]  # 10 of 80 KiB: below 1 MiB
            if not due:
                continue
            for r in due:
                r.again, r.pause = now + r.pause, min(2 * r.pause, 60.0)
            await self.publish("result", {"v": 1, "load": self.load(), "results": [r.result for r in due]})
            self.wake.set()  # there may be more

    # Control
    async def control(self, msg):
        m = json.loads(msg.data)
        if m.get("v") != 1 or self.usurped:
            return
        op, reply = m.get("op"), ME | {"load": self.load()}
        if op not in ("ping", "status", "kill", "drain", "settled"):
            reply["error"] = f"unknown operation {op}"
        if op == "drain":
            self.drain()
        for ref in m.get("runs") or []:
            run = self.runs.get((ref["run_id"], ref["attempt"]))
            if op == "settled" and run and run.result and ref.get("boot_id", BOOT) == BOOT:
                run.settled, run.forget = True, time.monotonic() + 60
            if op == "kill" and (not run or run.status == "refused"):
                self.runs[ref["run_id"], ref["attempt"]] = run = Run(ref, "barred")
                run.forget = time.monotonic() + 60
            elif op == "kill" and run.status in ("accepted", "running"):
                run.killed = m.get("reason") or "killed"
                run.task.cancel()
        if op in ("status", "kill"):
            reply["statuses"] = [self.status(ref) for ref in m.get("runs") or []]
        await msg.respond(json.dumps(reply).encode())

    def status(self, ref):
        run = self.runs.get((ref["run_id"], ref["attempt"]))
        out = {"run_id": ref["run_id"], "attempt": ref["attempt"], "status": run.status if run else "unknown"}
        if run and run.started:
            out["started_at"] = instant(run.started)
        if run and run.result and not run.settled:
            out["result"] = run.result
        return out

    def drain(self):
        self.draining = True
        self.beat.set()
        for run in self.runs.values():
            if run.status == "accepted":
                run.task.cancel()


async def main():
    e, stop = None, asyncio.Event()

    async def reconnected():
        e.beat.set(), e.wake.set()
        for run in e.runs.values():
            run.again = 0.0

    nc = await nats.connect(os.environ.get("BELFRY_NATS_URL", "nats://127.0.0.1:4222"), token=os.environ["BELFRY_TOKEN"],
                            inbox_prefix=f"_INBOX_{GROUP}".encode(), pending_size=0, max_reconnect_attempts=-1, reconnected_cb=reconnected)
    e = Executor(nc)
    await nc.subscribe(f"belfry.v1.trigger.{GROUP}.{INSTANCE}", cb=e.offers)
    await nc.subscribe(f"belfry.v1.control.{GROUP}.{INSTANCE}", cb=e.control)
    await nc.flush()
    for s in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(s, stop.set)
    loops = [asyncio.create_task(e.heartbeat()), asyncio.create_task(e.report())]
    await stop.wait()
    e.drain()
    for until in (time.monotonic() + 30, time.monotonic() + 40):  # first let them end, then end them
        while time.monotonic() < until and any(not r.settled for r in e.runs.values() if r.task):
            await asyncio.sleep(0.1)
        for r in e.runs.values():
            if r.status == "running":
                r.task.cancel()
    for task in loops:
        task.cancel()
    if e.leased() and e.revision:
        await e.send_beat(b"", {"KV-Operation": "DEL", "Nats-Expected-Last-Subject-Sequence": str(e.revision)})
    await nc.close()


if __name__ == "__main__":
    asyncio.run(main())
