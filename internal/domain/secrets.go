package domain

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Masked replaces a secret that is not shown.
const Masked = "•••"

// secretWords are the words that mark a name as that of a secret, such as db_password, apiKey or X-Auth-Token.
const secretWords = `(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization)`

// Patterns of secrets in JSON and in other text: name=value, name: value, --name value, and passwords in URLs. RE2 needs time
// proportional to the text, whatever its content.
var (
	secretName = regexp.MustCompile(`(?i)` + secretWords)
	secretText = regexp.MustCompile(`(?i)([\w.-]*` + secretWords + `[\w.-]*["']?\s*[=:]\s*|--[\w-]*` + secretWords + `[\w-]*\s+)` +
		`(?:(?:bearer|basic)\s+)?(?:"[^"]*"?|'[^']*'?|[^\s,;&"']+)`)
	secretURL = regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`)
)

// MaskParam replaces the secrets in a param: the values of names that contain a secret word, in JSON or in text, and passwords in
// URLs. It knows secrets by their names only and is therefore no protection: callers must not show the param at all to users who
// may not know its secrets.
func MaskParam(param string) string {
	if trimmed := strings.TrimSpace(param); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		d := json.NewDecoder(strings.NewReader(trimmed))
		d.UseNumber()
		var v any
		if d.Decode(&v) == nil && !d.More() {
			masked, found := maskValue(v)
			if !found {
				return param
			}
			var out strings.Builder
			e := json.NewEncoder(&out)
			e.SetEscapeHTML(false)
			if e.Encode(masked) == nil {
				return strings.TrimSuffix(out.String(), "\n")
			}
		}
	}
	return maskText(param)
}

func maskText(s string) string {
	return secretURL.ReplaceAllString(secretText.ReplaceAllString(s, "${1}"+Masked), "${1}"+Masked+"@")
}

// maskValue masks decoded JSON in place and reports whether it contained a secret.
func maskValue(v any) (masked any, found bool) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value != nil && value != "" && secretName.MatchString(name) {
				v[name], found = Masked, true
				continue
			}
			inner, some := maskValue(value)
			v[name], found = inner, found || some
		}
	case []any:
		for i, value := range v {
			inner, some := maskValue(value)
			v[i], found = inner, found || some
		}
	case string:
		if text := maskText(v); text != v {
			return text, true
		}
	}
	return v, found
}
