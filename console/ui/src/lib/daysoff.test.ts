import { describe, expect, it } from "vitest";
import { dateOf, later, month, parseDates, weekdayOf } from "./daysoff";

describe("dates", () => {
  it("reject days that do not exist", () => {
    expect([
      dateOf(2026, 12, 25),
      dateOf(2024, 2, 29),
      dateOf(2026, 2, 29),
      dateOf(2026, 13, 1),
      dateOf(1969, 12, 31),
      dateOf(2200, 1, 1),
      dateOf(2199, 12, 31),
    ]).toEqual(["2026-12-25", "2024-02-29", undefined, undefined, undefined, undefined, "2199-12-31"]);
    expect([weekdayOf("2026-11-22"), weekdayOf("2026-11-23"), later("2026-12-31", 1), later("2024-03-01", -1)]).toEqual(
      ["sunday", "monday", "2027-01-01", "2024-02-29"],
    );
  });

  it("of a month are arranged in weeks from Monday", () => {
    const weeks = month(2026, 11); // begins on a Sunday
    expect(weeks.length).toBe(6);
    expect(weeks[0]).toEqual([undefined, undefined, undefined, undefined, undefined, undefined, "2026-11-01"]);
    expect(weeks[5]).toEqual(["2026-11-30", undefined, undefined, undefined, undefined, undefined, undefined]);
    expect(month(2027, 2).flat()).toHaveLength(28); // from a Monday to a Sunday
    expect(month(2027, 2).flat()).not.toContain(undefined);
  });
});

describe("dates from a text", () => {
  it("reads several notations", () => {
    expect(
      parseDates(
        "2026-12-25 Christmas Day\n# moved: 2026-01-09\n\n2026/12/26; 20270101 # two\n2026-12-25\n2026年5月1日\n",
      ),
    ).toEqual({
      dates: ["2026-05-01", "2026-12-25", "2026-12-26", "2027-01-01"],
      faults: [],
    });
  });

  it("reads spans", () => {
    for (const sign of ["..", " - ", "–", " to ", "至", " ~ "])
      expect(parseDates(`2026-09-30${sign}2026-10-02`).dates).toEqual(["2026-09-30", "2026-10-01", "2026-10-02"]);
    expect(parseDates("2026-09-30 and 2026-10-02").dates).toEqual(["2026-09-30", "2026-10-02"]);
  });

  it("reports faulty lines, and reads the others", () => {
    expect(
      parseDates("2026-12-25\nChristmas\n2026-02-30\n2026-10-07..2026-10-01\n1970-01-01..2199-12-31\n25.12.2026"),
    ).toEqual({
      dates: ["2026-12-25"],
      faults: [
        { line: 2, text: "Christmas" },
        { line: 3, text: "2026-02-30" },
        { line: 4, text: "2026-10-07..2026-10-01" },
        { line: 5, text: "1970-01-01..2199-12-31" },
        { line: 6, text: "25.12.2026" },
      ],
    });
  });

  it("reads an iCalendar file with whole days, spans and folded lines, without cancelled events", () => {
    expect(
      parseDates(
        [
          "BEGIN:VCALENDAR",
          "BEGIN:VEVENT",
          "SUMMARY:Christmas",
          " Day",
          "DTSTART;VALUE=DATE:20261225",
          "DTEND;VALUE=DATE:20261227",
          "END:VEVENT",
          "BEGIN:VEVENT",
          "DTSTART;TZID=Europe/Berlin:20270101T100000",
          "DTEND;TZID=Europe/Berlin:20270101T120000",
          "END:VEVENT",
          "BEGIN:VEVENT",
          "STATUS:CANCELLED",
          "DTSTART;VALUE=DATE:20270106",
          "END:VEVENT",
          "BEGIN:VEVENT",
          "DTSTART;VALUE=DATE:202",
          " 70501",
          "END:VEVENT",
          "END:VCALENDAR",
        ].join("\r\n"),
      ),
    ).toEqual({
      dates: ["2026-12-25", "2026-12-26", "2027-01-01", "2027-05-01"],
      faults: [],
    });
  });

  it("reads yearly events for six years, and refuses other repetitions", () => {
    const y = new Date().getFullYear();
    const event = (rule: string, more = "") =>
      parseDates(
        `BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Day\nDTSTART;VALUE=DATE:20191225\nRRULE:${rule}\n${more}END:VEVENT\nEND:VCALENDAR`,
      );
    expect(event("FREQ=YEARLY").dates).toEqual([0, 1, 2, 3, 4, 5].map((n) => `${y + n}-12-25`));
    expect(event("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=25", `EXDATE;VALUE=DATE:${y}1225\n`).dates).toEqual(
      [1, 2, 3, 4, 5].map((n) => `${y + n}-12-25`),
    );
    expect(event(`FREQ=YEARLY;UNTIL=${y + 1}0101T000000Z`).dates).toEqual([`${y}-12-25`]);
    expect(event("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH")).toEqual({ dates: [], faults: [{ line: 2, text: "Day" }] });
    expect(event("FREQ=WEEKLY").faults).toHaveLength(1);
  });
});
