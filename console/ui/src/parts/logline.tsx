import type { LogLine } from "../api/client";
import { useT } from "../i18n";
import { spans } from "../lib/ansi";
import { lineInAttempt } from "../lib/loglines";
import { millis } from "../lib/time";

/** Line is a line of a log. Its number is a link to it. several is true if the log has more than one attempt. */
export function Line({ line, several, onLink }: { line: LogLine; several: boolean; onLink: (n: number) => void }) {
  const t = useT();
  const n = `${several ? `${line.attempt}:` : ""}${lineInAttempt(line.n)}`;
  return (
    <>
      <a
        className="log-n"
        href={`?line=${line.n}`}
        tabIndex={-1}
        title={t("log.link", { n })}
        onClick={(e) => {
          if (e.ctrlKey || e.metaKey || e.shiftKey) return; // a new tab or window
          e.preventDefault();
          onLink(line.n);
        }}
      >
        {n}
      </a>
      <span className="log-at" title={line.at}>
        {millis(line.at)}
      </span>
      <span className="log-level">{line.level}</span>
      <span className="log-text">
        <LineText text={line.text} />
      </span>
    </>
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
