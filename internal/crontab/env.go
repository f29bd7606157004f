package crontab

import "strings"

// parseEnv parses `name = value` like cron. It returns false for any other line, such as an entry. Name and value may
// be in single or double quotes, which must match; inside them no character is special. Without quotes, a value keeps
// blanks inside and loses those around it. Nothing is expanded.
func parseEnv(s string) (name, value string, ok bool) {
	name, rest, ok := parseName(s)
	if !ok || name == "" || strings.ContainsRune(name, '=') {
		return "", "", false
	}
	rest, found := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
	if !found {
		return "", "", false
	}
	rest = strings.Trim(rest, " \t")
	if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
		value, after, closed := strings.Cut(rest[1:], rest[:1])
		if !closed || after != "" {
			return "", "", false
		}
		return name, value, true
	}
	return name, rest, true
}

func parseName(s string) (name, rest string, ok bool) {
	if s[0] == '"' || s[0] == '\'' {
		return strings.Cut(s[1:], s[:1])
	}
	end := strings.IndexAny(s, " \t=")
	if end < 0 {
		return "", "", false
	}
	return s[:end], s[end:], true
}
