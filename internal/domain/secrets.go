package domain

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Masked stands where a secret is not shown.
const Masked = "•••"

// secretWords are the words by which names tell of a secret: db_password, apiKey, X-Auth-Token.
const secretWords = `(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential|authorization)`

// Secrets in JSON, and in other text: name=value and name: value, --name value, passwords in URLs. RE2 takes time in
// proportion to the text, whatever it is.
var (
	secretName = regexp.MustCompile(`(?i)` + secretWords)
	secretText = regexp.MustCompile(`(?i)([\w.-]*` + secretWords + `[\w.-]*["']?\s*[=:]\s*|--[\w-]*` + secretWords + `[\w-]*\s+)` +
		`(?:(?:bearer|basic)\s+)?(?:"[^"]*"?|'[^']*'?|[^\s,;&"']+)`)
	secretURL = regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`)
)

// MaskParam hides what a param calls a secret: the values of such names in JSON or in text, and the passwords in URLs. It
// goes by names alone, so that it is a help and no protection: who may not know a secret must not see the param.
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

// maskValue masks decoded JSON in place, and reports whether there was anything to mask.
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
