const names: Record<string, string> = { postgres: "Postgres", nats: "NATS", jetstream: "JetStream" };

/** The name of a server as people write it, in every language. An unknown one stays as it is. */
export const serverName = (name: string): string => names[name] ?? name;
