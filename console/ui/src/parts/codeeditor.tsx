import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  defaultHighlightStyle,
  HighlightStyle,
  indentUnit,
  StreamLanguage,
  syntaxHighlighting,
  type StreamParser,
} from "@codemirror/language";
import { go } from "@codemirror/legacy-modes/mode/go";
import { javascript } from "@codemirror/legacy-modes/mode/javascript";
import { powerShell } from "@codemirror/legacy-modes/mode/powershell";
import { python } from "@codemirror/legacy-modes/mode/python";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import { Compartment, EditorState } from "@codemirror/state";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { nonce } from "../lib/nonce";

const parsers: Record<string, StreamParser<unknown>> = {
  bash: shell,
  sh: shell,
  python,
  node: javascript,
  powershell: powerShell,
  go,
  yaml,
};

/** highlight is CodeMirror's style with colours that app.css defines for the light and the dark theme: #708 is --code-708. */
const highlight = HighlightStyle.define(
  defaultHighlightStyle.specs.map((s) =>
    typeof s.color === "string" ? { ...s, color: `var(--code-${s.color.slice(1)})` } : s,
  ),
);

/** CodeEditor edits code. It is loaded only when it is needed. Escape and then Tab moves the focus out of it. */
export default function CodeEditor({
  value,
  onChange,
  language,
  label,
  readOnly,
}: {
  value: string;
  onChange?: (code: string) => void;
  language: string;
  label: string;
  readOnly?: boolean;
}) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const latest = useRef(onChange);
  latest.current = onChange;
  const mode = useRef(new Compartment());

  useEffect(() => {
    if (!host.current) return;
    const v = new EditorView({
      parent: host.current,
      state: EditorState.create({
        doc: value,
        extensions: [
          EditorView.cspNonce.of(nonce),
          lineNumbers(),
          history(),
          indentUnit.of("  "),
          keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
          syntaxHighlighting(highlight),
          mode.current.of([]),
          EditorState.readOnly.of(readOnly ?? false),
          EditorView.contentAttributes.of({ "aria-label": label }),
          EditorView.updateListener.of((u) => {
            if (u.docChanged) latest.current?.(u.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = v;
    return () => v.destroy();
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- after its creation the editor owns its text
  }, []);
  useEffect(() => {
    const p = parsers[language];
    view.current?.dispatch({ effects: mode.current.reconfigure(p ? StreamLanguage.define(p) : []) });
  }, [language]);
  useEffect(() => {
    const v = view.current;
    if (v && v.state.doc.toString() !== value)
      v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);
  return <div className="code-editor" ref={host} />;
}
