/**
 * misfits runs in the page. It returns by how much the page is wider than its window, which rows of lists are higher than three lines, and which lists
 * have columns without a head.
 */
export function misfits() {
  const faults = [];
  const over = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (over > 0) {
    const outside = [...document.querySelectorAll("main *")].filter(
      (e) =>
        e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 &&
        !e.closest(".table-box, .cm-scroller"),
    );
    faults.push(
      `${over} px wider than the window: ${outside
        .slice(0, 4)
        .map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 30)}`)
        .join(" | ")}`,
    );
  }
  for (const row of document.querySelectorAll("main table.list tbody tr:not(.detail)")) {
    const style = getComputedStyle(row.cells[0]);
    const lines =
      (row.getBoundingClientRect().height - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) /
      parseFloat(style.lineHeight);
    if (lines > 3.3)
      faults.push(`a row has ${lines.toFixed(1)} lines: ${row.innerText.slice(0, 60).replace(/\s+/g, " ")}`);
  }
  for (const cell of document.querySelectorAll("main table.list tbody .grow")) {
    const visible = cell.getClientRects().length > 0;
    if (visible && cell.getBoundingClientRect().width < 90)
      faults.push(`the main column is ${Math.round(cell.getBoundingClientRect().width)} px wide`);
  }
  for (const table of document.querySelectorAll("main table.list:not(.compact)")) {
    const shown = (row) => [...(row?.cells ?? [])].filter((c) => getComputedStyle(c).display !== "none");
    const heads = shown(table.tHead?.rows[0]);
    const cells = shown(table.querySelector("tbody tr:not(.detail)"));
    if (heads.length && cells.length && !cells.some((c) => c.colSpan > 1) && heads.length !== cells.length)
      faults.push(`a list has ${cells.length} columns with ${heads.length} heads: ${table.tHead.innerText}`);
  }
  return [...new Set(faults)].slice(0, 4);
}
