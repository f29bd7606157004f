// Groups that are open for executors of XXL-JOB, which register at a gateway.
import { Alert, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { get, type Schemas } from "../api/client";
import { useT, type Translate } from "../i18n";
import { isShared, xxlKind } from "../lib/executors";
import { Empty, ErrorNote, Facts, Snippet } from "./basics";
import { openCommand, xxlSettings } from "./snippets";

type Instance = Schemas["Instance"];

const kinds = ["java", "go", "python", "other"] as const;

/** xxlKindName names a kind of executors. An unknown kind is returned unchanged. */
export const xxlKindName = (t: Translate, kind: string): string =>
  (kinds as readonly string[]).includes(kind) ? t(`xxl.kind.${kind as "java"}`) : kind;

/** XXLGroup says how a group is open for executors of XXL-JOB, how an executor is pointed at the gateway, and what these executors cannot do. */
export function XXLGroup({ group, instances }: { group: string; instances: Instance[] }) {
  const t = useT();
  const open = useQuery({
    queryKey: ["groups", group, "xxl-job"],
    queryFn: () => get("/api/v1/groups/{name}/xxl-job", { path: { name: group } }),
    staleTime: 30_000,
  });
  if (open.error) return <ErrorNote error={open.error} />;
  const x = open.data;
  if (!x) return null;
  const there = kinds.filter((k) => instances.some((i) => xxlKind(i) === k));
  const limits = limitsOf(t, instances);
  return (
    <>
      {x.warnings.length > 0 && (
        <Alert color="yellow" variant="light" my={4}>
          {x.warnings.map((w) => (
            <div key={w}>{w}</div>
          ))}
        </Alert>
      )}
      <Facts
        of={[
          [
            t("xxl.title"),
            there.length
              ? there
                  .map((k) => `${xxlKindName(t, k)}: ${instances.filter((i) => xxlKind(i) === k).length}`)
                  .join(" · ")
              : t("xxl.none"),
          ],
          [t("xxl.app"), x.app_name],
          [t("xxl.networks"), x.networks.join(", ")],
          [t("xxl.token"), t(x.has_token ? (x.encrypted ? "xxl.token.sealed" : "xxl.token.plain") : "xxl.token.no")],
        ]}
      />
      <details className="more">
        <summary>{t("xxl.limits")}</summary>
        <ul className="names">
          {limits.map((l) => (
            <li key={l}>{l}</li>
          ))}
        </ul>
      </details>
      <details className="more" open={instances.length === 0}>
        <summary>{t("xxl.join")}</summary>
        <Text size="sm">{t("xxl.settings")}</Text>
        <Snippet code={xxlSettings(x.app_name, x.has_token)} />
        <Text size="sm">{t("xxl.change")}</Text>
        <Snippet code={openCommand(group, x.networks, x.app_name)} />
      </details>
      {instances.length === 0 && <Empty title={t("group.noinstances")} />}
    </>
  );
}

/** OpenGroup says how a group without instances is opened for executors of XXL-JOB. */
export function OpenGroup({ group }: { group: string }) {
  const t = useT();
  return (
    <details>
      <summary>{t("xxl.open")}</summary>
      <Text size="sm">{t("xxl.open.text")}</Text>
      <Snippet code={openCommand(group)} />
      <Text size="sm">{t("xxl.settings")}</Text>
      <Snippet code={xxlSettings(group)} />
    </details>
  );
}

/** limitsOf lists what the protocol of XXL-JOB cannot do, and what only some of the instances cannot do. */
function limitsOf(t: Translate, instances: Instance[]): string[] {
  const has = (...wanted: string[]) => instances.some((i) => wanted.includes(xxlKind(i) ?? ""));
  const shared = instances.filter(isShared).map((i) => i.id);
  return [
    t("xxl.limit.unanswered"),
    t("xxl.limit.lost"),
    t("xxl.limit.death"),
    t("xxl.limit.kill"),
    t("xxl.limit.one"),
    t("xxl.limit.handlers"),
    t("xxl.limit.fields"),
    t("xxl.limit.timeout"),
    ...(has("go") ? [t("xxl.limit.go")] : []),
    ...(has("go", "python") ? [t("xxl.limit.scripts")] : []),
    ...(shared.length > 0 ? [t("xxl.limit.shared", { list: shared.join(", ") })] : []),
  ];
}
