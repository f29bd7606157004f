// How executors reach NATS and gateways, and what they offer.
import { useQuery } from "@tanstack/react-query";
import { get, type Schemas } from "../api/client";
import { useMay } from "./me";

/** anyHandler in the handlers of an instance stands for all handlers, except those in lacks. */
export const anyHandler = "*";

/** The label of an instance that is an executor of XXL-JOB: java, go, python or other. */
export const xxlKind = (i: Schemas["Instance"]): string | undefined => (i.labels as Record<string, string>).xxl_job;

/** Several processes seem to be behind the address of an executor of XXL-JOB. */
export const isShared = (i: Schemas["Instance"]): boolean => (i.labels as Record<string, string>).shared === "true";

export type Servers = Schemas["Executors"];

/** serversFrom replaces a loopback address, which is that of the console's host, by the name of that host. Without an address it uses the usual port. */
export function serversFrom(s: Servers | undefined, host: string): Servers {
  if (!s?.url) return { url: `nats://${host}:4222`, tls: false };
  return { ...s, url: s.url.replace(/(:\/\/)(localhost|127(?:\.\d+){3}|\[::1\])(?=[:/,]|$)/g, `$1${host}`) };
}

/** useServers returns how executors reach NATS. Only admins may read it. */
export function useServers(): Servers {
  const may = useMay();
  const system = useQuery({
    queryKey: ["system"],
    queryFn: () => get("/api/v1/system"),
    enabled: may.administer,
    staleTime: 60_000,
  });
  return serversFrom(system.data?.executors, location.hostname);
}
