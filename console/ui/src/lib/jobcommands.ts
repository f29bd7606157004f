// A job as a command that makes the same job elsewhere, or changes it back.
import type { JobInput } from "../api/client";

/** here returns a shell word that is no line of the text, so that it can end a here-document. */
function here(text: string): string {
  const lines = new Set(text.split("\n"));
  let word = "END";
  while (lines.has(word)) word += "_";
  return word;
}

/** applyCommand creates or updates the job of a YAML text with the command line. */
export function applyCommand(yaml: string, server: string): string {
  const end = here(yaml);
  return `BELFRY_SERVER=${server} belfry job apply -f - <<'${end}'\n${yaml.trimEnd()}\n${end}`;
}

/** putCommand sets the fields of a job with curl. Without the version, the command can be repeated. */
export function putCommand(id: number, job: JobInput, server: string): string {
  const { version, ...fields } = job;
  void version;
  const body = JSON.stringify(fields, null, 2);
  return (
    'curl -X PUT -H "Authorization: Bearer $BELFRY_TOKEN" -H "Content-Type: application/json" \\\n' +
    `  ${server}/api/v1/jobs/${id} -d @- <<'END'\n${body}\nEND`
  );
}
