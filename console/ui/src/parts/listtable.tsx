// The frame of the pages that list things of one kind: a table whose rows have actions, one of which deletes after a confirmation.
import { ActionIcon, Button, Group, Menu } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { useT } from "../i18n";
import { Confirm, useRefresh } from "./actions";

/** Column is a column of a table. Its class says at which widths it is shown. */
export interface Column<I> {
  head: string;
  className?: string;
  cell: (item: I) => ReactNode;
}

/** Action is an entry of a row's menu. */
export interface Action {
  label: string;
  run: () => void;
}

/** Removal deletes an item after a confirmation, and reads the list with the key refresh again. */
export interface Removal<I> {
  title: (item: I) => string;
  text: string;
  run: (item: I) => Promise<unknown>;
  refresh: string;
  may?: (item: I) => boolean;
}

/**
 * ListTable is a table of items; its parent is a .table-box. Each row ends with its actions: those beside the menu, and a menu that ends with the removal. If the removal is
 * the only action, it is a button. Without actions, the table has no such column. name names an item for a screen reader.
 */
export function ListTable<I>({
  items,
  id,
  name,
  columns,
  beside,
  actions,
  removal,
}: {
  items: I[];
  id: (item: I) => string | number;
  name: (item: I) => string;
  columns: Column<I>[];
  beside?: (item: I) => ReactNode;
  actions?: (item: I) => Action[];
  removal?: Removal<I>;
}) {
  const t = useT();
  const refresh = useRefresh();
  const [deleting, setDeleting] = useState<I>();
  const acts = beside || actions || removal;
  return (
    <>
      <table className="list">
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.head} className={headClass(c.className)}>
                {c.head}
              </th>
            ))}
            {acts && (
              <th>
                <span className="sr-only">{t("actions")}</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={id(item)}>
              {columns.map((c) => (
                <td key={c.head} className={c.className}>
                  {c.cell(item)}
                </td>
              ))}
              {acts && (
                <td className="row-actions">
                  <Group gap={2} wrap="nowrap" justify="flex-end">
                    {beside?.(item)}
                    <RowMenu
                      name={name(item)}
                      actions={actions?.(item) ?? []}
                      remove={removal && removal.may?.(item) !== false ? () => setDeleting(item) : undefined}
                    />
                  </Group>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
      {deleting !== undefined && removal && (
        <Confirm
          title={removal.title(deleting)}
          text={removal.text}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await removal.run(deleting);
            await refresh(removal.refresh);
          }}
        />
      )}
    </>
  );
}

/** headClass keeps the classes that hide a column at some widths. The others are about the content of cells. */
const headClass = (name = "") =>
  name
    .split(" ")
    .filter((c) => ["mid", "wide", "keep"].includes(c))
    .join(" ") || undefined;

function RowMenu({ name, actions, remove }: { name: string; actions: Action[]; remove?: () => void }) {
  const t = useT();
  if (actions.length === 0)
    return remove ? (
      <Button size="compact-xs" variant="subtle" color="red" onClick={remove}>
        {t("delete")}
      </Button>
    ) : null;
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name })}>
          ⋯
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        {actions.map((a) => (
          <Menu.Item key={a.label} onClick={a.run}>
            {a.label}
          </Menu.Item>
        ))}
        {remove && (
          <Menu.Item color="red" onClick={remove}>
            {t("delete")}
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
