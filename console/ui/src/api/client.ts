// A typed fetch for the REST API. The types are in schema.d.ts, which openapi-typescript generates from the OpenAPI golden file.
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type JobInput = Schemas["JobInput"];
export type Schedule = Schemas["Schedule"];
export type Run = Schemas["Run"];
export type RunDetail = Schemas["RunDetail"];
export type RunState = Run["state"];
export type LogLine = Schemas["LogLine"];
export type Instance = Schemas["Instance"];
export type Group = Schemas["ListedGroup"];
export type Me = Schemas["Me"];
export type Problem = Schemas["Problem"];

/** ApiError is a problem (RFC 9457) that the server answered. Status 0 means that no answer arrived. */
export class ApiError extends Error {
  /** retryAfter is the header Retry-After in seconds. */
  constructor(
    readonly problem: Problem,
    readonly retryAfter?: number,
  ) {
    super(problem.detail || problem.title);
  }
  get status(): number {
    return this.problem.status;
  }
  /** at returns the faults of a field and of its entries. location is the field's path in the body. */
  at(location: string): string | undefined {
    const found = this.problem.errors?.filter((e) => isOf(e.location, location)).map((e) => e.message);
    return found?.length ? found.join("; ") : undefined;
  }
  /** elsewhere returns the faults of all fields except the shown ones, which a form cannot show at a field. */
  elsewhere(shown: string[]): string[] {
    return (this.problem.errors ?? [])
      .filter((e) => !shown.some((s) => isOf(e.location, s)))
      .map((e) => `${e.location}: ${e.message}`);
  }
}

const isOf = (location: string, field: string) => location === field || location.startsWith(`${field}[`);

type Method = "get" | "post" | "put" | "patch" | "delete";
type PathsWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends Record<M, infer O> ? ([O] extends [undefined] ? never : P) : never;
}[keyof paths];
type Operation<P extends keyof paths, M extends Method> = paths[P] extends Record<M, infer O> ? O : never;
type Json<T> = T extends { content: { "application/json": infer B } } ? B : undefined;
type Ok<R> = R extends { 200: infer A }
  ? Json<A>
  : R extends { 201: infer A }
    ? Json<A>
    : R extends { 202: infer A }
      ? Json<A>
      : undefined;
export type Answer<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { responses: infer R } ? Ok<R> : never;
type Options<P extends keyof paths, M extends Method> = {
  path?: Operation<P, M> extends { parameters: { path: infer V } } ? V : never;
  query?: Operation<P, M> extends { parameters: { query?: infer V } } ? V : never;
  body?: Operation<P, M> extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;
  yaml?: string; // a body that is YAML
  version?: number; // as If-Match
  signal?: AbortSignal;
};

let language = "en";
/** speak sets the language in which the server describes schedules. */
export function speak(l: "en" | "zh-CN") {
  language = l;
}

let onUnauthorized: () => void = () => {};
/** whenUnauthorized sets the function that is called when the session has ended. */
export function whenUnauthorized(f: () => void) {
  onUnauthorized = f;
}

export async function call<M extends Method, P extends PathsWith<M>>(
  method: M,
  path: P,
  o: Options<P, M> = {},
): Promise<Answer<P, M>> {
  let url = String(path);
  for (const [name, value] of Object.entries((o.path ?? {}) as Record<string, unknown>)) {
    url = url.replace(`{${name}}`, encodeURIComponent(String(value)));
  }
  url += search((o.query ?? {}) as Record<string, unknown>);
  const headers: Record<string, string> = { "Accept-Language": language };
  if (o.body !== undefined) headers["Content-Type"] = "application/json";
  else if (o.yaml !== undefined) headers["Content-Type"] = "application/yaml";
  if (o.version !== undefined) headers["If-Match"] = `"${o.version}"`;
  let answer: Response;
  try {
    answer = await fetch(url, {
      method: method.toUpperCase(),
      headers,
      body: o.body === undefined ? o.yaml : JSON.stringify(o.body),
      signal: o.signal,
      credentials: "same-origin",
    });
  } catch (e) {
    if (e instanceof DOMException && e.name === "AbortError") throw e;
    throw new ApiError({ title: "offline", status: 0 });
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/api/v1/auth/login") onUnauthorized();
    throw new ApiError(await problemOf(answer), Number(answer.headers.get("Retry-After")) || undefined);
  }
  if (answer.status === 204 || answer.headers.get("Content-Length") === "0") return undefined as Answer<P, M>;
  const text = await answer.text();
  return (text ? JSON.parse(text) : undefined) as Answer<P, M>;
}

async function problemOf(answer: Response): Promise<Problem> {
  try {
    const p: unknown = await answer.json();
    if (p && typeof p === "object" && "title" in p) return p as Problem;
  } catch {
    // The answer is not JSON, for example because a proxy sent it.
  }
  return { title: answer.statusText || String(answer.status), status: answer.status };
}

/** search makes the query of a URL without empty values. */
export function search(query: Record<string, unknown>): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0)) continue;
    q.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const s = q.toString();
  return s ? `?${s}` : "";
}

export const get = <P extends PathsWith<"get">>(path: P, o?: Options<P, "get">) => call("get", path, o);
export const post = <P extends PathsWith<"post">>(path: P, o?: Options<P, "post">) => call("post", path, o);
