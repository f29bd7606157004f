import { Button, Checkbox, Group, Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useReducer, useRef, useState } from "react";
import type { LogLine } from "../api/client";
import { useT } from "../i18n";
import { spans } from "../lib/ansi";
import { fits, lineInAttempt } from "../lib/loglines";
import { millis } from "../lib/time";
import { Icon, icons } from "./basics";
import { Chips, SearchField } from "./filters";

const levels = ["debug", "info", "warn", "error", "stdout", "stderr"] as const;
/** If a log has more lines, the oldest are dropped from the page. The download has all lines. */
const maxLines = 300_000;

type Status = "connecting" | "live" | "ended" | "broken";

/** useLog follows a run's log. It appends lines to one array without copying it, and increments version for each change. */
function useLog(run: string, onState: () => void) {
  const lines = useRef<LogLine[]>([]);
  const [version, grow] = useReducer((n: number) => n + 1, 0);
  const [status, setStatus] = useState<Status>("connecting");
  const [dropped, setDropped] = useState(0);
  const latest = useRef(onState);
  latest.current = onState;
  useEffect(() => {
    lines.current = [];
    let frame = 0;
    const source = new EventSource(`/api/v1/runs/${encodeURIComponent(run)}/log/stream`);
    source.addEventListener("open", () => setStatus("live"));
    source.addEventListener("line", (e: MessageEvent<string>) => {
      const line = JSON.parse(e.data) as LogLine;
      const last = lines.current.at(-1);
      if (last && line.n <= last.n) return; // sent again after a reconnect
      lines.current.push(line);
      if (frame) return;
      frame = requestAnimationFrame(() => {
        frame = 0;
        const over = lines.current.length - maxLines;
        if (over > 0) {
          lines.current.splice(0, over + maxLines / 10);
          setDropped((d) => d + over + maxLines / 10);
        }
        grow();
      });
    });
    source.addEventListener("state", () => latest.current());
    source.addEventListener("end", () => {
      source.close();
      setStatus("ended");
      latest.current();
    });
    source.addEventListener("error", () =>
      setStatus(source.readyState === EventSource.CLOSED ? "broken" : "connecting"),
    );
    return () => {
      source.close();
      cancelAnimationFrame(frame);
    };
  }, [run]);
  return { lines: lines.current, version, status, dropped };
}

export function LogView({ run, onState, over }: { run: string; onState: () => void; over: boolean }) {
  const t = useT();
  const { lines, version, status, dropped } = useLog(run, onState);
  const [text, setText] = useState("");
  const [level, setLevel] = useState("");
  const [wrap, setWrap] = useState(() => localStorage.getItem("belfry.log.wrap") === "1");
  const [follow, setFollow] = useState(true);
  const box = useRef<HTMLDivElement>(null);

  // While the filter stays the same, only new lines are checked, so that a new line costs the same in a log of 100,000 lines.
  const cache = useRef<{ key: string; seen: number; shown: LogLine[] }>({ key: "", seen: 0, shown: [] });
  const shown = useMemo(() => {
    const filter = { text: text.toLowerCase(), levels: level ? level.split(",") : [] };
    if (!filter.text && filter.levels.length === 0) return lines;
    const key = `${text}|${level}|${dropped}`;
    const c = cache.current.key === key ? cache.current : { key, seen: 0, shown: [] };
    for (; c.seen < lines.length; c.seen++) {
      const line = lines[c.seen];
      if (line && fits(line, filter)) c.shown.push(line);
    }
    cache.current = c;
    return c.shown;
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- version changes with the array
  }, [lines, version, text, level, dropped]);

  const rows = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => 19,
    overscan: 20,
  });
  const count = shown.length;
  useEffect(() => {
    if (follow && count > 0) rows.scrollToIndex(count - 1, { align: "end" });
  }, [count, follow, rows]);
  useEffect(() => {
    localStorage.setItem("belfry.log.wrap", wrap ? "1" : "0");
    rows.measure();
  }, [wrap, rows]);

  const several = (lines.at(-1)?.attempt ?? 1) > 1;
  return (
    <div>
      <div className="filters">
        <SearchField value={text} onChange={setText} label={t("log.search")} />
        <Chips label={t("log.level")} values={levels} value={level} onChange={setLevel} name={(l) => l} />
        <Checkbox size="xs" checked={wrap} onChange={(e) => setWrap(e.currentTarget.checked)} label={t("log.wrap")} />
        <Checkbox
          size="xs"
          checked={follow}
          onChange={(e) => setFollow(e.currentTarget.checked)}
          label={t("log.follow")}
        />
        <Button
          component="a"
          size="compact-xs"
          variant="default"
          href={`/api/v1/runs/${run}/log.txt`}
          download={`${run}.log`}
          leftSection={<Icon d={icons.down} size={12} />}
        >
          {t("log.download")}
        </Button>
      </div>
      <div
        className={`log ${wrap ? "log-wrap" : ""}`}
        ref={box}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label={t("log.title")}
        onWheel={(e) => {
          if (e.deltaY < 0) setFollow(false);
        }}
        onKeyDown={(e) => {
          if (["ArrowUp", "PageUp", "Home"].includes(e.key)) setFollow(false);
          if (e.key === "End") setFollow(true);
        }}
        onScroll={(e) => {
          const b = e.currentTarget;
          if (b.scrollHeight - b.scrollTop - b.clientHeight < 4) setFollow(true);
        }}
      >
        <div className="log-inner" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((item) => {
            const line = shown[item.index];
            return (
              line && (
                <div
                  key={item.key}
                  ref={rows.measureElement}
                  data-index={item.index}
                  className={`log-line level-${line.level}`}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <span className="log-n">
                    {several ? `${line.attempt}:` : ""}
                    {lineInAttempt(line.n)}
                  </span>
                  <span className="log-at" title={line.at}>
                    {millis(line.at)}
                  </span>
                  <span className="log-level">{line.level}</span>
                  <span className="log-text">
                    <LineText text={line.text} />
                  </span>
                </div>
              )
            );
          })}
        </div>
        {count === 0 && (
          <Text size="sm" className="log-empty">
            {lines.length ? t("log.nofit") : status === "ended" || over ? t("log.none") : t("log.waiting")}
          </Text>
        )}
      </div>
      <Group gap="md" mt={4}>
        <Text size="xs" c="dimmed" className="num">
          {count === lines.length
            ? t("log.lines", { n: lines.length })
            : t("log.lines.of", { n: count, all: lines.length })}
          {dropped ? ` · ${t("log.dropped", { n: dropped })}` : ""}
        </Text>
        <Text size="xs" c="dimmed" role="status">
          {t(`log.${status}`)}
        </Text>
      </Group>
    </div>
  );
}

function LineText({ text }: { text: string }) {
  return (
    <>
      {spans(text).map((s, i) => {
        const c = [
          s.color && `fg-${s.color}`,
          s.background && `bg-${s.background}`,
          s.bold && "bold",
          s.dim && "dim",
          s.italic && "italic",
          s.underline && "underline",
        ]
          .filter(Boolean)
          .join(" ");
        return c ? (
          <span key={i} className={c}>
            {s.text}
          </span>
        ) : (
          s.text
        );
      })}
    </>
  );
}
