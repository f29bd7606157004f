import { Button, Checkbox, Group, Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { LogLine } from "../api/client";
import { useT } from "../i18n";
import { useFilters } from "../lib/hooks";
import { fits, lineAt } from "../lib/loglines";
import { useLog } from "../lib/runlog";
import { Icon, icons } from "./icons";
import { Chips, SearchField } from "./filters";
import { Line } from "./logline";

const levels = ["debug", "info", "warn", "error", "stdout", "stderr"] as const;
const wrapKey = "belfry.log.wrap";

/** wrapped returns what the user has chosen; otherwise long lines are wrapped on phones. */
function wrapped(): boolean {
  const kept = localStorage.getItem(wrapKey);
  return kept === null ? matchMedia("(max-width: 600px)").matches : kept === "1";
}

/** useShown returns the lines that match the filter. */
function useShown(lines: LogLine[], version: number, dropped: number, text: string, level: string): LogLine[] {
  // While the filter stays the same, only new lines are checked, so that a new line costs the same in a log of 100,000 lines.
  const cache = useRef<{ key: string; seen: number; shown: LogLine[] }>({ key: "", seen: 0, shown: [] });
  return useMemo(() => {
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
}

/** LogView shows the log of a run. The address has the search, the levels, and the line that a link names. */
export function LogView({ run, onState, over }: { run: string; onState: () => void; over: boolean }) {
  const t = useT();
  const { lines, version, status, dropped, firstError } = useLog(run, onState);
  const [f, setF] = useFilters(["line", "q", "level"] as const);
  const [wrap, setWrap] = useState(wrapped);
  const [follow, setFollow] = useState(f.line === "");
  const box = useRef<HTMLDivElement>(null);
  const shown = useShown(lines, version, dropped, f.q, f.level);
  const count = shown.length;
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => 19,
    overscan: 20,
  });
  useEffect(() => {
    if (follow && count > 0) rows.scrollToIndex(count - 1, { align: "end" });
  }, [count, follow, rows]);
  useEffect(() => rows.measure(), [wrap, rows]);

  // The line of the address comes into view as soon as it has arrived, and again when it is chosen again.
  const target = Number(f.line) || 0;
  const at = target ? lineAt(shown, target) : -1;
  const [jumps, setJumps] = useState(0);
  const seen = useRef("");
  useEffect(() => {
    if (at < 0 || seen.current === `${target} ${jumps}`) return;
    seen.current = `${target} ${jumps}`;
    setFollow(false);
    rows.scrollToIndex(at, { align: "center" });
    box.current?.scrollIntoView({ block: "nearest" });
  }, [at, target, jumps, rows]);
  const marked = shown[at]?.n === target ? at : -1; // a filter may hide the line
  const choose = (n: number) => {
    seen.current = `${n} ${jumps}`; // it is in view already
    setFollow(false);
    setF({ line: String(n) });
  };
  const jump = () => {
    if (firstError === undefined) return;
    setF({ line: String(firstError), q: "", level: "" }); // a filter might hide the line
    setJumps(jumps + 1);
    box.current?.focus({ preventScroll: true });
  };

  const several = (lines.at(-1)?.attempt ?? 1) > 1;
  return (
    <div>
      <div className="filters">
        <SearchField value={f.q} onChange={(q) => setF({ q })} label={t("log.search")} />
        {firstError !== undefined && (
          <Button size="compact-sm" variant="default" onClick={jump}>
            {t("log.firsterror")}
          </Button>
        )}
        <Chips
          label={t("log.level")}
          values={levels}
          value={f.level}
          onChange={(level) => setF({ level })}
          name={(l) => l}
        />
        <div className="together">
          <Checkbox
            size="xs"
            checked={wrap}
            onChange={(e) => {
              setWrap(e.currentTarget.checked);
              localStorage.setItem(wrapKey, e.currentTarget.checked ? "1" : "0");
            }}
            label={t("log.wrap")}
          />
          <Checkbox
            size="xs"
            checked={follow}
            onChange={(e) => setFollow(e.currentTarget.checked)}
            label={t("log.follow")}
          />
        </div>
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
          if (!f.line && b.scrollHeight - b.scrollTop - b.clientHeight < 4) setFollow(true);
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
                  className={`log-line level-${line.level} ${item.index === marked ? "log-target" : ""}`}
                  aria-current={item.index === marked ? "location" : undefined}
                  style={{ transform: `translateY(${item.start}px)` }}
                >
                  <Line line={line} several={several} onLink={choose} />
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
