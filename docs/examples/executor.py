#!/usr/bin/env python3
"""A minimal Belfry executor. docs/wire.md, section "A minimal executor", describes it. It needs nats-py: pip install nats-py==2.16.0

Results are stored only in memory. If this process is killed, runs whose results are not settled are lost.
Another module can import this one, add handlers to HANDLERS, and call asyncio.run(Executor().run()).
"""
import asyncio, collections, json, os, secrets, signal, socket, time
from datetime import datetime, timezone

import nats.errors
from nats.aio.client import Client

GROUP, TOKEN, BOOT = os.environ["BELFRY_GROUP"], os.environ["BELFRY_TOKEN"], secrets.token_hex(8)
URL, CAPACITY = os.environ.get("BELFRY_NATS_URL", "nats://127.0.0.1:4222"), int(os.environ.get("BELFRY_CAPACITY", 16))
INSTANCE = os.environ.get("BELFRY_INSTANCE") or f"python-{BOOT}"
ME, KEY, STARTED = {"v": 1, "instance": INSTANCE, "boot_id": BOOT}, f"$KV.belfry_instances.{GROUP}.{INSTANCE}", time.time()
BEAT, LIMIT = 3, 10                   # seconds between heartbeats; seconds in which an attempt may start after its heartbeat
REMEMBER, OUTCOMES = 60, (600, 200_000)  # how long refusals are kept (s); how long and how many outcomes are kept
DRAIN, CANCELLED, SETTLE = 30, 10, 30  # seconds at a shutdown for running handlers; after their cancellation; until their results are settled


async def greet(run):
    run.log(f"greeting {run.param or 'nobody'}")
    return f"hello {run.param}, attempt {run.attempt}, shard {run.shard['index']} of {run.shard['total']}"

async def nap(run):
    await asyncio.sleep(float(run.param or 1))

async def stumble(run):
    raise ValueError("stumbled over " + run.param)

HANDLERS = {"greet": greet, "nap": nap, "stumble": stumble}


def clocks():
    boot = [time.clock_gettime(time.CLOCK_BOOTTIME)] if hasattr(time, "CLOCK_BOOTTIME") else []
    return [time.time(), time.monotonic()] + boot

def passed(since):
    return max(now - then for now, then in zip(clocks(), since))

def instant(t):
    return datetime.fromtimestamp(t, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z") if t else None

def seconds(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

def clip(text, most):  # cuts text to this many bytes of UTF-8, and replaces NUL
    return text.replace("\0", "\ufffd").encode(errors="replace")[:most].decode(errors="ignore")

def encode(message):
    return json.dumps(message, ensure_ascii=False).encode()

def pieces(items, most, room):
    """Splits a list into pieces for one message each, with at most this many items and bytes."""
    piece, size = [], 0
    for item in items:
        need = len(encode(item)) + 1
        if piece and (len(piece) == most or size + need > room):
            yield piece
            piece, size = [], 0
        piece, size = piece + [item], size + need
    if piece:
        yield piece

async def wait(event, most):
    try:
        await asyncio.wait_for(event.wait(), most)
    except asyncio.TimeoutError:
        pass
    event.clear()


class Run:
    """The state of an attempt in this executor. The status is accepted, running, done, refused or barred."""
    def __init__(self, ref, bind, status, reason=""):
        self.ref, self.bind, self.status, self.reason = {"run_id": ref["run_id"], "attempt": ref["attempt"]}, bind, status, reason
        self.attempt, self.param, self.shard, self.parent = ref["attempt"], ref.get("param", ""), ref.get("shard"), ref.get("parent")
        self.job, self.lines, self.ending = ref.get("job_id"), [], ""  # ending is the reason of the cancellation
        self.task = self.started = self.result = None
        self.again, self.pause, self.settled, self.forget = 0, 5, False, float("inf")
        self.barred = False  # a kill came; if the attempt is handed back, it is not accepted again

    def log(self, text, level="info"):
        self.lines.append({"n": len(self.lines) + 1, "at": instant(time.time()), "level": level, "text": clip(text, 16 << 10)})

    def state(self):
        result = {"result": self.result} if self.result and not self.settled else {}
        outcome = {"outcome": self.result["outcome"]} if self.result and self.started else {}
        return self.ref | {"status": self.status, "started_at": instant(self.started)} | outcome | result


class Executor:
    def __init__(self):
        self.nc, self.seq, self.taken, self.unsure = None, 0, False, None  # taken: another process has this instance's name
        self.refusals, self.allowed = 0, None  # allowed: clocks() when a dispatcher last said that the refusals come from another client
        self.runs, self.ended = {}, collections.OrderedDict()  # by (run_id, attempt); ended has the settled outcomes, oldest first
        self.used, self.changes, self.draining, self.leaving = 0, 0, False, False
        self.beats, self.confirmed, self.renewed = {}, None, 0  # beats: clocks() before each heartbeat was sent
        self.beat, self.send = asyncio.Event(), asyncio.Event()

    def load(self, change=0):
        self.used, self.changes = self.used + change, self.changes + abs(change)
        return {"capacity": CAPACITY, "running": self.used, "seq": self.changes, "draining": self.draining}

    async def publish(self, subject, body, timeout=5, headers=None):
        """Returns a stream's acknowledgement, {"seq": …} or {"error": {"err_code": …}}, or {} if there was none."""
        try:
            return json.loads((await self.nc.request(subject, body, timeout=timeout, headers=headers)).data) if self.nc else {}
        except (nats.errors.Error, asyncio.TimeoutError, OSError) as e:
            print(subject, repr(e), flush=True)
            return {}

    async def answer(self, msg, reply):
        try:
            await msg.respond(encode(ME | {"load": self.load()} | reply))
        except nats.errors.Error as e:  # the connection is gone, so Belfry asks again
            print(msg.subject, repr(e), flush=True)

    async def heartbeats(self):
        n = 0
        while not self.leaving:
            n, sent = n + 1, clocks()  # read before the heartbeat is sent: the limit of attempts that rely on it counts from here
            self.beats = {k: t for k, t in self.beats.items() if passed(t) < LIMIT} | {n: sent}
            await self.heartbeat(sent, encode(ME | self.load() | {
                "group": GROUP, "beat": n, "handlers": sorted(HANDLERS), "script_languages": [], "labels": {}, "version": "example",
                "host": socket.gethostname(), "started_at": instant(STARTED)}))
            await wait(self.beat, max(BEAT - passed(sent), 0))

    async def heartbeat(self, sent, body):
        """The first heartbeat takes the name over. Each later one is stored only if the previous one was this process's, or expired, or
        if a dispatcher has said that the name is not taken."""
        conditions = [self.seq, 0] if self.seq else [None]
        if self.unsure and passed(self.unsure) < LIMIT or self.allowed and passed(self.allowed) < LIMIT:
            conditions.append(None)
        for seq in conditions:
            ack = await self.publish(KEY, body, 2, None if seq is None else {"Nats-Expected-Last-Subject-Sequence": str(seq)})
            refused = ack.get("error", {}).get("err_code") in (10071, 10164)
            if not refused:
                break
        if "seq" in ack and "error" not in ack:  # a refusal may have a seq, as well
            if not self.confirmed or passed(self.confirmed) >= LIMIT:
                self.renewed = time.time()
            if self.seq and seq is None:
                self.again(0.5)
            self.seq, self.taken, self.unsure, self.confirmed, self.refusals = ack["seq"], False, None, sent, 0
        elif refused:
            self.taken, self.unsure, self.refusals = True, None, self.refusals + 1
            print("another process of this group runs as", INSTANCE, flush=True)
            if self.refusals < 10:
                self.again(0.1)
        elif self.seq and not self.taken:
            self.unsure = sent

    def again(self, after):
        asyncio.get_running_loop().call_later(after, self.beat.set)

    async def offers(self, msg):
        m, received = json.loads(msg.data), clocks()
        if m["v"] != 1 or len(m["offers"]) > 256 or m["boot_id"] != BOOT and self.taken:
            return
        verdicts = [{"run_id": o["run_id"], "attempt": o["attempt"]} | (
            self.judge(o, m.get("beat", 0), received) if m["boot_id"] == BOOT else {"verdict": "refused", "reason": "stale"})
            for o in m["offers"]]
        await self.answer(msg, {"verdicts": verdicts})

    def judge(self, o, beat, received):
        def refused(why):
            return {"verdict": "refused", "reason": why}
        key, bind, accepted = (o["run_id"], o["attempt"]), o["bind"], {"verdict": "accepted"}
        run, outcome = self.runs.get(key), self.ended.get(key, [""])[0]
        if run and run.task:
            repeated, run.bind = bind <= run.bind, max(run.bind, bind)
            if run.status != "done":
                return accepted  # a repeated offer; the attempt starts only once
            outcome = run.result["outcome"]
            if outcome == "unstarted" and (repeated or not run.settled or run.barred):
                return refused("stale")
        elif run and bind <= run.bind:  # it was refused or barred before
            return refused(run.reason if bind == run.bind else "stale")
        if outcome and outcome != "unstarted":
            return {"verdict": "ended", "outcome": outcome} if beat else accepted
        now, bound = seconds(o["now"]), seconds(o["bound_at"])
        since = self.beats.get(beat) if beat else self.confirmed
        over = not since or passed(since) >= LIMIT
        if beat:
            stale, over = over, False
        else:  # an older server's offer: see docs/wire.md, "Older versions"
            stale = now - bound > LIMIT or bound - (now - received[0]) < self.renewed
        why = ("stale" if stale else "draining" if self.draining else "lease" if over else "unsupported" if o.get("script") else
               "no_handler" if o.get("handler") not in HANDLERS else "full" if self.used >= CAPACITY else "")
        self.runs[key] = run = Run(o, bind, "refused" if why else "accepted", why)
        if why:
            run.forget = time.monotonic() + REMEMBER
            return refused(why)
        self.load(+1)
        run.task = asyncio.ensure_future(self.work(run, o, since, received[1] + max(seconds(o["due_at"]) - now, 0)))
        run.finish = asyncio.ensure_future(self.finish(run))  # asyncio keeps no reference to tasks
        return accepted

    async def work(self, run, o, since, due):
        await asyncio.sleep(max(due - time.monotonic(), 0))
        timeout = o["timeout_ms"] and asyncio.get_running_loop().call_later(o["timeout_ms"] / 1000, self.end, run, "timeout")
        try:
            # Nothing may wait between this check and the handler's first instruction. asyncio.wait_for and create_task would start
            # the handler later, in another task.
            if self.draining or passed(since) >= LIMIT:
                raise asyncio.CancelledError
            run.status, run.started = "running", time.time()
            return await HANDLERS[o["handler"]](run)
        finally:
            if timeout:
                timeout.cancel()

    def end(self, run, reason):
        if run.status in ("accepted", "running") and not run.ending:
            run.ending = reason
            run.task.cancel()

    async def finish(self, run):
        await asyncio.wait([run.task])
        finished, error = time.time(), None if run.task.cancelled() else run.task.exception()
        if not run.started:
            outcome, reason = "unstarted", "" if run.ending == "drained" else run.ending
        elif run.ending == "timeout":
            outcome, reason = "failed", "timeout"
        elif not error and not run.task.cancelled():
            outcome, reason = "succeeded", ""
        else:
            outcome, reason = "cancelled" if run.ending in ("killed", "covered") else "failed", run.ending or "handler_error"
        for lines in pieces(run.lines, 500, 255 << 10):  # sent only once: lines that are not acknowledged are missing
            await self.publish(f"belfry.v1.log.{GROUP}", encode({"v": 1, "instance": INSTANCE} | run.ref | {"lines": lines}))
        run.status, run.result = "done", run.ref | {
            "instance": INSTANCE, "boot_id": BOOT, "bind": run.bind, "outcome": outcome, "reason": reason,
            "message": clip(repr(error), 16 << 10) if error else "",
            "output": clip(str(run.task.result() or ""), 64 << 10) if outcome == "succeeded" else "",
            "started_at": instant(run.started), "finished_at": instant(finished), "last_line": len(run.lines)}
        self.load(-1)
        self.send.set()

    async def report(self):
        while True:
            await wait(self.send, 1)
            now = time.monotonic()
            self.runs = {k: r for k, r in self.runs.items() if r.forget > now}
            while self.ended and (len(self.ended) > OUTCOMES[1] or next(iter(self.ended.values()))[1] < now - OUTCOMES[0]):
                self.ended.popitem(last=False)
            due = [r for r in self.runs.values() if r.result and not r.settled and r.again <= now]
            for r in due:
                r.again, r.pause = now + r.pause, min(2 * r.pause, 60)
            for results in pieces([r.result for r in due], 250, 512 << 10):
                await self.publish(f"belfry.v1.result.{GROUP}", encode({"v": 1, "load": self.load(), "results": results}))

    async def control(self, msg):
        m = json.loads(msg.data)
        op, reply = m["op"], {}
        if m["v"] == 1 and op == "overwrite" and m["boot_id"] == BOOT:
            self.allowed = clocks()
            self.beat.set()
        if m["v"] != 1 or op == "overwrite" or self.taken and op not in ("kill", "settled"):
            return
        for ref in m.get("runs") or []:
            key = ref["run_id"], ref["attempt"]
            run = self.runs.get(key)
            if op == "settled" and run and run.result and ref.get("boot_id", BOOT) == BOOT:
                run.settled, run.forget = True, time.monotonic() + REMEMBER
                if run.result["outcome"] != "unstarted":
                    self.ended[key] = run.result["outcome"], time.monotonic()
                    del self.runs[key]
            elif op == "kill" and run and run.task:
                reason = m["reason"] if m.get("reason") in ("covered", "timeout") else "killed"
                self.end(run, reason)
                if reason != "timeout":
                    run.barred, run.forget = True, max(run.forget, time.monotonic() + REMEMBER)
            elif op == "kill" and key not in self.ended:
                self.runs[key] = run = Run(ref, float("inf"), "barred")
                run.forget = time.monotonic() + REMEMBER
        if op == "drain":
            self.drain()
        elif op in ("status", "kill"):  # if the answer has no room for an attempt, Belfry asks about it again
            reply["statuses"] = next(pieces([self.status(ref) for ref in m.get("runs") or []], 500, 512 << 10), [])
        elif op == "ping" and m.get("job_id"):
            reply["job_runs"] = sum(r.job == m["job_id"] and r.status in ("accepted", "running") for r in self.runs.values())
        elif op not in ("ping", "settled"):
            reply["error"] = f"unknown operation {op}"
        if msg.reply and not self.taken:  # settled has no reply subject
            await self.answer(msg, reply)

    def status(self, ref):
        key = ref["run_id"], ref["attempt"]
        if key in self.ended:
            return ref | {"status": "done", "outcome": self.ended[key][0]}
        return self.runs[key].state() if key in self.runs else ref | {"status": "unknown"}

    def drain(self):
        if not self.draining:
            self.draining, self.changes = True, self.changes + 1
            self.beat.set()
            self.cancel("accepted")
            asyncio.get_running_loop().call_later(DRAIN, self.cancel, "running")

    def cancel(self, status):
        for run in self.runs.values():
            if run.status == status:
                self.end(run, "drained")

    async def link(self):
        """Keeps a connection. nats-py reconnects by itself, but closes for good after some errors, such as an expired log-in."""
        while True:
            nc = Client()
            try:
                await nc.connect(URL.split(","), token=TOKEN, name=f"{GROUP}.{INSTANCE}", inbox_prefix=f"_INBOX_{GROUP}", pending_size=0,
                                 ping_interval=2, max_reconnect_attempts=-1, reconnected_cb=self.connected)
                await nc.subscribe(f"belfry.v1.trigger.{GROUP}.{INSTANCE}", cb=self.offers)
                await nc.subscribe(f"belfry.v1.control.{GROUP}.{INSTANCE}", cb=self.control)
                await nc.flush(5)
                self.nc = nc
                await self.connected()
                while not nc.is_closed:  # nats-py does not always call closed_cb
                    await asyncio.sleep(0.1)
            except (nats.errors.Error, asyncio.TimeoutError, OSError) as e:
                print("NATS:", repr(e), flush=True)
                await nc.close()
            await asyncio.sleep(1)

    async def connected(self):
        for run in self.runs.values():
            run.again = 0
        self.beat.set(), self.send.set()

    async def while_any(self, busy, most):
        until = time.monotonic() + most
        while time.monotonic() < until and any(map(busy, self.runs.values())):
            await asyncio.sleep(0.1)

    async def run(self):
        stop = asyncio.Event()
        for s in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(s, stop.set)
        link, report, heartbeats, stopped = (asyncio.ensure_future(loop) for loop in (
            self.link(), self.report(), self.heartbeats(), stop.wait()))
        for ended in (await asyncio.wait([link, report, heartbeats, stopped], return_when=asyncio.FIRST_COMPLETED))[0]:
            ended.result()  # raises the error that ended a loop too early
        self.drain()
        await self.while_any(lambda r: r.task and not r.result, DRAIN + CANCELLED)
        await self.while_any(lambda r: r.task and not r.settled, SETTLE)  # heartbeats and repeated results continue meanwhile
        self.leaving = True
        self.beat.set()
        await heartbeats
        if self.seq and not self.taken:  # the last message, because Belfry then assumes that all attempts here have ended
            settled = all(run.settled for run in self.runs.values() if run.task)
            bye = encode({"v": 1, "settled_boot": BOOT}) if settled else b""  # attempts that never arrived here go elsewhere at once
            await self.publish(KEY, bye, 2, {"KV-Operation": "DEL", "Nats-Expected-Last-Subject-Sequence": str(self.seq)})
        link.cancel(), report.cancel()
        if self.nc:
            await self.nc.close()


if __name__ == "__main__":
    asyncio.run(Executor().run())
