/** misfits runs in the page. It returns by how much the page is wider than its window, and which rows of lists are higher than three lines. */
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
  return [...new Set(faults)].slice(0, 4);
}
