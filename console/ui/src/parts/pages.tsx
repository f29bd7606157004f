import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useT } from "../i18n";
import { Empty, ErrorNote } from "./basics";

interface Page<I> {
  items: I[];
  next_cursor: string;
}

/** Pages reads a list page by page. If the list has no items, it shows empty. */
export function Pages<I>({
  name,
  read,
  every = 10_000,
  empty,
  children,
}: {
  name: unknown[];
  read: (cursor: string) => Promise<Page<I>>;
  every?: number;
  empty?: ReactNode;
  children: (items: I[]) => ReactNode;
}) {
  const t = useT();
  const list = useInfiniteQuery({
    queryKey: name,
    queryFn: ({ pageParam }) => read(pageParam),
    initialPageParam: "",
    getNextPageParam: (p) => p.next_cursor || undefined,
    placeholderData: (before) => before,
    refetchInterval: every,
  });
  const items = list.data?.pages.flatMap((p) => p.items) ?? [];
  return (
    <>
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data && items.length === 0 && (empty ?? <Empty title={t("list.none")} />)}
      {items.length > 0 && <div className="table-box">{children(items)}</div>}
      {list.hasNextPage && (
        <Button
          mt="sm"
          size="xs"
          variant="default"
          loading={list.isFetchingNextPage}
          onClick={() => void list.fetchNextPage()}
        >
          {t("load.more")}
        </Button>
      )}
    </>
  );
}
