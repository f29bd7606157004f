package crontab

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// name makes a job name that is easy to type, from the file's base name and the words of the command. Six digits of the
// command's hash make it unique.
func (p *parser) name(command, stdin string, hasStdin bool) string {
	whole := command
	if hasStdin {
		whole += "%" + stdin
	}
	sum := sha256.Sum256([]byte(whole))
	parts := []string{clipSlug(slug(filepath.Base(filepath.ToSlash(p.path))), 40), clipSlug(slug(command), 40), hex.EncodeToString(sum[:3])}
	name := strings.Join(parts, "-")
	return strings.Trim(strings.ReplaceAll(name, "--", "-"), "-")
}

// slug keeps ASCII letters and digits, in lower case, and replaces each sequence of other characters by a hyphen.
func slug(s string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.TrimSuffix(b.String(), "-")
}

// clipSlug cuts a slug to n bytes, between words if possible.
func clipSlug(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[:n]
	if i := strings.LastIndexByte(s, '-'); i > n/2 {
		s = s[:i]
	}
	return strings.TrimSuffix(s, "-")
}

// fieldBounds are the lowest and highest values of the five time fields.
var fieldBounds = [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}

// drawRandom replaces each `low~high` of cronie by a number that depends only on seed. In cronie, crond chooses a
// random number when it reads the file. Ranges that it cannot parse are left to the schedule compiler.
func drawRandom(expr, seed string) (string, bool) {
	fields := strings.Fields(expr)
	if len(fields) != 5 || !strings.Contains(expr, "~") {
		return expr, false
	}
	drawn := false
	for i, field := range fields {
		items := strings.Split(field, ",")
		for j, item := range items {
			if n, ok := draw(item, fieldBounds[i], fmt.Sprintf("%s %d %d", seed, i, j)); ok {
				items[j] = strconv.Itoa(n)
				drawn = true
			}
		}
		fields[i] = strings.Join(items, ",")
	}
	return strings.Join(fields, " "), drawn
}

func draw(item string, bounds [2]int, seed string) (int, bool) {
	low, high, found := strings.Cut(item, "~")
	if !found {
		return 0, false
	}
	lo, errLow := numberOr(low, bounds[0])
	hi, errHigh := numberOr(high, bounds[1])
	if errLow != nil || errHigh != nil || lo < bounds[0] || hi > bounds[1] || lo > hi {
		return 0, false
	}
	sum := sha256.Sum256([]byte(seed))
	return lo + int(binary.BigEndian.Uint32(sum[:])%uint32(hi-lo+1)), true
}

func numberOr(s string, absent int) (int, error) {
	if s == "" {
		return absent, nil
	}
	return strconv.Atoi(s)
}
