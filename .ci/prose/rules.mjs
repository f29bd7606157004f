// The rules of the prose check. CONTRIBUTING.md describes the style. A rule names a construction that makes readers stumble,
// and what to write instead. Each has sentences that it must find and sentences that it must leave alone in prose.test.mjs.

/** Words that Belfry does not use, each with its replacement. */
export const terms = [
  [/(?<!--|--no-)\byardsticks?\b|\bbare path\b/i, "baseline"],
  [/\btortures?d?\b/i, "fault test"],
  [/\bmend(s|ed|ing)?\b/i, "repair"],
  [/\bhearers?\b/i, "subscriber, receiver"],
  [/\bthaw(s|ed|ing)?\b/i, "after a freeze, wake"],
  [/(?<![`"'])\b(nobody|somebody|everybody)\b/i, "the name of the subject: no dispatcher, another process, all callers"],
  [/\b(anew|whence|thereof|whereupon|henceforth|lest|thereby)\b/i, "again, from which, of it, then, from now on, so that … not"],
  [/\bfor ever\b/i, "forever, without a bound, continuously"],
  [/\bat hand\b/i, "available"],
  [/\btrying again\b/i, "retrying"],
  [/\b(is|are|was|were) told\b/i, "is notified, receives"],
  [/\bwhat comes? of it\b|\bcame of it\b/i, "the result"],
];

/** Constructions. */
export const constructions = [
  {
    pattern: /(?:^|[.;:] )(?:Who|Whoever|Whatever|What) (?:\w+ ){0,3}(?:is|are|was|were|has|have|had|does|do|will|may|must|can|cannot)\b[^.?;]*[,.;]? (?:is|are|has|waits|gets|stays|goes|does|cannot|must|may)\b[^?]*$/m,
    advice: "a clause is the subject; name the subject: the dispatcher, a caller, an executor",
  },
  {
    pattern: /(?:^|[.;,:] )(?:[Ww]ere|[Hh]ad) (?:it|the|a|he|they|one|there)\b/,
    advice: "inverted condition; begin with if",
  },
  {
    pattern: /, for (?:it|he|they|there) \w+/,
    advice: "for as a conjunction; write because",
  },
  {
    pattern: /(?:^|[.;] )Of (?:all|those|these|them|what|some|most)\b/,
    advice: "the object comes first; begin with the subject",
  },
];

const rule = (context) => {
  const { Syntax, RuleError, report, getSource, locator } = context;
  const find = (node, pattern, message) => {
    const source = getSource(node);
    const found = pattern.exec(source);
    if (found) {
      const start = found.index;
      report(node, new RuleError(message(found[0].trim()), { padding: locator.range([start, start + found[0].length]) }));
    }
  };
  const check = (node) => {
    for (const [pattern, instead] of terms) {
      find(node, pattern, (word) => `"${word}": write ${instead}`);
    }
    for (const { pattern, advice } of constructions) {
      find(node, pattern, (words) => `"${words.slice(0, 60)}": ${advice}`);
    }
  };
  return { [Syntax.Str]: check };
};

export const rules = [{ ruleId: "plain-words", rule }];
