package event

import (
	"regexp"
	"strings"
)

// The bounds of event names.
const (
	MaxNameBytes = 128
	maxTokens    = 16
)

var token = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// NameRule states the form of event names.
const NameRule = "must be 1 to 128 characters: up to 16 words of letters, digits, - and _, joined by dots, such as orders.created"

// ValidName reports whether name is a valid event name.
func ValidName(name string) bool {
	return validTokens(name, func(_ string, _ bool) bool { return false })
}

// PatternRule states the form of a trigger's event name pattern.
const PatternRule = "must be an event's name, in which * stands for one word and a final > for one or more, such as orders.* or orders.>"

// ValidPattern reports whether pattern is a valid event name pattern.
func ValidPattern(pattern string) bool {
	return validTokens(pattern, func(t string, last bool) bool { return t == "*" || t == ">" && last })
}

func validTokens(name string, also func(token string, last bool) bool) bool {
	if len(name) > MaxNameBytes {
		return false
	}
	tokens := strings.Split(name, ".")
	if len(tokens) > maxTokens {
		return false
	}
	for i, t := range tokens {
		if !token.MatchString(t) && !also(t, i == len(tokens)-1) {
			return false
		}
	}
	return true
}

// Matches reports whether pattern matches the event name.
func Matches(pattern, name string) bool {
	for {
		p, morePattern, patternGoesOn := strings.Cut(pattern, ".")
		n, moreName, nameGoesOn := strings.Cut(name, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != n, patternGoesOn != nameGoesOn:
			return false
		case !patternGoesOn:
			return true
		}
		pattern, name = morePattern, moreName
	}
}

// Head returns the words of a pattern before its first wildcard. Triggers are looked up by it: a pattern matches a name only if
// its head is one of the name's Heads.
func Head(pattern string) string {
	tokens := strings.Split(pattern, ".")
	for i, t := range tokens {
		if t == "*" || t == ">" {
			return strings.Join(tokens[:i], ".")
		}
	}
	return pattern
}

// Heads returns the heads of all patterns that could match a name: all its prefixes of whole words, from the empty one to the
// name itself.
func Heads(name string) []string {
	heads := []string{""}
	for i, c := range name {
		if c == '.' {
			heads = append(heads, name[:i])
		}
	}
	return append(heads, name)
}
