import {
  AppShell,
  Burger,
  Button,
  Group,
  Kbd,
  Modal,
  NavLink,
  Table,
  Text,
  UnstyledButton,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useIsFetching, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { post } from "../api/client";
import { useLanguage, useT, type Key } from "../i18n";
import { newCalendar } from "../lib/calendars";
import { useFocusKept } from "../lib/focus";
import { useKeys, useNow } from "../lib/hooks";
import { dropDrafts } from "../lib/keptdrafts";
import { leaveNow } from "../lib/leaving";
import { useMay, useMe } from "../lib/me";
import { offset, viewerZone } from "../lib/time";
import { Icon, icons } from "./icons";
import { Palette, type Command } from "./palette";
import { LanguageSwitch, ThemeSwitch } from "./switches";

export const pages: { path: string; key: Key; keys: string; admin?: boolean }[] = [
  { path: "/", key: "nav.overview", keys: "g o" },
  { path: "/jobs", key: "nav.jobs", keys: "g j" },
  { path: "/runs", key: "nav.runs", keys: "g r" },
  { path: "/bulk", key: "nav.bulk", keys: "g b" },
  { path: "/week", key: "nav.week", keys: "g w" },
  { path: "/calendars", key: "nav.calendars", keys: "g h" },
  { path: "/executors", key: "nav.executors", keys: "g e" },
  { path: "/events", key: "nav.events", keys: "g v" },
  { path: "/alert-channels", key: "nav.channels", keys: "g c", admin: true },
  { path: "/dead-letters", key: "nav.deadletters", keys: "g d", admin: true },
  { path: "/tokens", key: "nav.tokens", keys: "g t" },
  { path: "/users", key: "nav.users", keys: "g u", admin: true },
  { path: "/audit", key: "nav.audit", keys: "g a", admin: true },
  { path: "/system", key: "nav.system", keys: "g s", admin: true },
];

export function Shell({ children }: { children: ReactNode }) {
  const { t, language, setLanguage } = useLanguage();
  const me = useMe();
  const may = useMay();
  const client = useQueryClient();
  const [path, navigate] = useLocation();
  const [menu, setMenu] = useState(false);
  const [palette, setPalette] = useDisclosure(false);
  const [help, setHelp] = useDisclosure(false);
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const loading = useIsFetching({ predicate: (q) => q.state.status === "pending" }) > 0;
  const shown = pages.filter((p) => !p.admin || may.administer);

  useFocusKept();

  // The handlers of useDisclosure are new in each render. If the effect depended on them, it would close the menu as soon as it opens.
  useEffect(() => setMenu(false), [path]);

  async function logOut() {
    await post("/api/v1/auth/logout").catch(() => undefined);
    dropDrafts();
    client.clear();
    leaveNow("/login");
  }

  useEffect(() => {
    const on = (e: KeyboardEvent) => {
      if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
        e.preventDefault();
        setPalette.toggle();
      }
    };
    window.addEventListener("keydown", on);
    return () => window.removeEventListener("keydown", on);
  }, [setPalette]);
  useKeys({
    "?": setHelp.open,
    "/": () => document.querySelector<HTMLElement>("[data-search]")?.focus(),
    n: () => may.operate && navigate("/jobs/new"),
    ...Object.fromEntries(shown.map((p) => [p.keys, () => navigate(p.path)])),
  });

  const commands: Command[] = [
    ...shown.map((p) => ({ label: t(p.key), hint: p.keys, run: () => navigate(p.path) })),
    ...(may.operate ? [{ label: t("jobs.new"), hint: "n", run: () => navigate("/jobs/new") }] : []),
    ...(may.administer ? [{ label: t("calendars.new"), run: () => navigate(`/calendars/${newCalendar}`) }] : []),
    { label: t("runs.failed"), run: () => navigate("/runs?state=failed") },
    {
      label: t(scheme === "dark" ? "theme.light" : "theme.dark"),
      run: () => setColorScheme(scheme === "dark" ? "light" : "dark"),
    },
    { label: language === "en" ? "简体中文" : "English", run: () => setLanguage(language === "en" ? "zh" : "en") },
    { label: t("help.title"), hint: "?", run: setHelp.open },
    { label: t("account.title"), run: () => navigate("/account") },
    { label: t("logout"), run: () => void logOut() },
  ];

  return (
    <AppShell
      header={{ height: 44 }}
      navbar={{ width: 176, breakpoint: "sm", collapsed: { mobile: !menu } }}
      padding="md"
      transitionDuration={0}
    >
      <a className="skip" href="#main">
        {t("skip")}
      </a>
      <AppShell.Header className="header">
        <Group h="100%" px="sm" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="xs" wrap="nowrap">
            <Burger
              opened={menu}
              onClick={() => setMenu(!menu)}
              aria-expanded={menu}
              hiddenFrom="sm"
              size="sm"
              aria-label={t("menu")}
            />
            <Link href="/" className="brand">
              <img src="/bell.svg" width={20} height={20} alt="" />
              Belfry
            </Link>
          </Group>
          <Zone />
          <Button
            variant="default"
            size="compact-sm"
            onClick={setPalette.open}
            leftSection={<Icon d={icons.search} size={14} />}
            className="palette-button"
            rightSection={
              <Kbd size="sm" visibleFrom="sm">
                Ctrl K
              </Kbd>
            }
          >
            {t("palette.open")}
          </Button>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label={t("menu")}>
        <div className="nav-main">
          {shown.map((p) => (
            <NavLink
              key={p.path}
              component={Link}
              href={p.path}
              label={t(p.key)}
              active={p.path === "/" ? path === "/" : path.startsWith(p.path)}
              aria-current={(p.path === "/" ? path === "/" : path.startsWith(p.path)) ? "page" : undefined}
              className="nav-link"
            />
          ))}
        </div>
        <div className="nav-foot">
          <LanguageSwitch />
          <ThemeSwitch />
          <Button
            variant="subtle"
            color="gray"
            size="compact-sm"
            leftSection={<Icon d={icons.keyboard} />}
            onClick={setHelp.open}
          >
            {t("help.short")}
          </Button>
          <div className="whoami">
            <Text size="sm" fw={600} truncate>
              <Link href="/account" className="plain-link" title={t("account.title")}>
                {me.username}
              </Link>
            </Text>
            <Text size="xs" c="dimmed">
              {t(`role.${me.role}`)}
              {me.groups.length ? ` · ${me.groups.join(", ")}` : ""}
            </Text>
            <Group gap="sm">
              <Link className="link" href="/account">
                {t("account.short")}
              </Link>
              <UnstyledButton className="link" onClick={() => void logOut()}>
                {t("logout")}
              </UnstyledButton>
            </Group>
          </div>
        </div>
      </AppShell.Navbar>
      <AppShell.Main id="main" tabIndex={-1} aria-busy={loading}>
        {children}
      </AppShell.Main>
      <Palette opened={palette} onClose={setPalette.close} commands={commands} />
      <Modal
        opened={help}
        onClose={setHelp.close}
        title={t("help.title")}
        closeButtonProps={{ "aria-label": t("close") }}
      >
        <Table>
          <Table.Tbody>
            {(
              [
                ["Ctrl K", t("help.palette")],
                ["/", t("help.search")],
                ["j k", t("help.rows")],
                ["Enter", t("help.open")],
                ...(may.operate ? [["a", t("help.ack")]] : []),
                ...(may.operate ? [["n", t("jobs.new")]] : []),
                ...shown.map((p) => [p.keys, t(p.key)]),
                ["?", t("help.title")],
              ] as [string, string][]
            ).map(([k, what]) => (
              <Table.Tr key={k}>
                <Table.Td w={110}>
                  {k.split(" ").map((x) => (
                    <Kbd key={x} mr={4}>
                      {x}
                    </Kbd>
                  ))}
                </Table.Td>
                <Table.Td>{what}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Modal>
    </AppShell>
  );
}

/** Zone names the time zone of all times, with its current offset. */
function Zone() {
  const t = useT();
  const now = useNow(60_000);
  return (
    <span className="zone" title={t("zone.title")}>
      {t("zone.all", { zone: viewerZone(), offset: offset(now) })}
    </span>
  );
}
