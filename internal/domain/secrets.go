package domain

import (
	"encoding/json"
	"path"
	"regexp"
	"strings"
)

// Masked replaces a secret that is not shown.
const Masked = "•••"

// Words that mark a name as that of a secret, such as db_password, apiKey, X-Auth-Token or Set-Cookie. secretEnds are only
// the last word of a name, such as X-Vault-Auth or DB_PASS.
const (
	secretWords = `(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|(?:api|access|private|account|signing|encryption)[_-]?key|credential|authorization|cookie|signature)`
	secretEnds  = `(?:auth|pass|pw|sig)`
	// nameInText is such a name within a text.
	nameInText = `(?:[\w.-]*` + secretWords + `[\w.-]*|[\w.-]*[_-]` + secretEnds + `|\bsig)`
	// word is a word of a shell.
	word = `(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"'])+`
	// gap separates words of a shell.
	gap = `(?:[ \t]|\\\r?\n)+`
)

// secretName matches the names of secrets in JSON.
var secretName = regexp.MustCompile(`(?i)` + secretWords + `|(?:^|[_.-])` + secretEnds + `$`)

// secretWord matches an argument that is the name of a secret, whose value is the next argument.
var secretWord = regexp.MustCompile(`(?i)^(?:-{0,2}[\w.-]*` + secretWords + `[\w.-]*|[\w.-]*[_-]` + secretEnds + `):?$`)

// textPatterns find secrets in text. The text between the groups 1 and 2 is masked. RE2 needs time proportional to the
// text, whatever its content.
var textPatterns = []*regexp.Regexp{
	// private keys in PEM
	regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`),
	// values that are secrets by their form: tokens of Belfry, GitHub, GitLab and Slack, and JSON web tokens
	regexp.MustCompile(`()\b(?:bf[a-z]_[\w-]{43}|gh[a-z]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*)()`),
	// headers, up to the end of the line or of the quotes around them
	regexp.MustCompile(`(?i)("(?:proxy-)?(?:authorization|(?:set-)?cookie2?)\s*:)[^"\r\n]+()`),
	regexp.MustCompile(`(?i)('(?:proxy-)?(?:authorization|(?:set-)?cookie2?)\s*:)[^'\r\n]+()`),
	regexp.MustCompile(`(?i)((?:^|[^"'\w])(?:proxy-)?(?:authorization|(?:set-)?cookie2?):[ \t]*)[^\r\n]+()`),
	// blocks of YAML
	regexp.MustCompile(`(?i)(` + nameInText + `["']?:[ \t]*)[|>][+-]?\d*[ \t]*(?:\r?\n[ \t]+[^\r\n]*)+()`),
	// --name value
	regexp.MustCompile(`(?i)((?:--?[\w-]*(?:` + secretWords + `[\w-]*|[_-]` + secretEnds + `)` + gap + `)+)` + word + `()`),
	// name=value, name: value, "name": "value", name := value, also within a quoted JSON
	regexp.MustCompile(`(?i)(` + nameInText + `(?:\\*["'])?\s*(?::=|=>|==?|:)\s*)(?:(?:bearer|basic|digest|token)\s+)?` +
		`(?:\\+"[^"]*"?|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s&"']+)()`),
	// "name", "value" in a list
	regexp.MustCompile(`(?i)("-{0,2}[\w.-]*` + secretWords + `[\w.-]*"\s*,\s*)"(?:[^"\\]|\\.)*(?:"(\s*[,\]])|$)`),
	// <name>value</name>
	regexp.MustCompile(`(?i)(<[\w:.-]*` + secretWords + `[\w:.-]*(?:\s[^<>]*)?>)[^<]+()`),
	// IDENTIFIED BY 'value', and the lines of a .netrc
	regexp.MustCompile(`(?i)((?:identified\s+by|password)\s+)(?:'[^']*'?|"[^"]*"?)()`),
	regexp.MustCompile(`(?i)(\blogin\s+\S+\s+password\s+)\S+()`),
	regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]{8,}()`),
	// URLs: passwords, tokens as the user, keys and signatures of the query, and chat robots
	regexp.MustCompile(`(://[^\s/:@"'<>]*:)[^\s/"'<>]*(@)`),
	regexp.MustCompile(`(://)[^\s/:@"'<>]{20,}(@)`),
	regexp.MustCompile(`(?i)([?&;](?:sig|key|signature)=)[^\s&"'<>#]+()`),
	regexp.MustCompile(`(?i)((?:hooks\.slack\.com/(?:services|workflows|triggers)|/bot/v2/hook|discord(?:app)?\.com/api/webhooks|api\.telegram\.org)/)[^\s"'<>]+()`),
	// the data source names of Go's MySQL driver
	regexp.MustCompile(`(\b[\w.-]+:)[^\s"'<>]+(@(?:tcp|unix)\()`),
}

// commands are programs with short options for a password.
var commands = []struct {
	name  *regexp.Regexp // of the program, or its first words
	line  *regexp.Regexp // the program with its arguments, up to the end of the command
	value *regexp.Regexp // $1 is the option
	alone *regexp.Regexp // the option as an argument; its value may follow in the same argument
}{
	command(`mysql\w*|mariadb[\w-]*`, `-p`, false),
	command(`sshpass|(?:docker|podman|nerdctl|helm(?:\s+registry)?|oras)\s+login`, `-p`, true),
	command(`curl|wget|http|https|xh`, `-[uUb]|--user|--proxy-user|--auth`, true),
	command(`redis-cli|valkey-cli`, `-a`, true),
	command(`ldap\w+`, `-w`, true),
	command(`mongo\w*|mongosh`, `-p`, true),
}

// command makes an entry of commands. apart: the value may also be the next argument.
func command(names, option string, apart bool) (c struct{ name, line, value, alone *regexp.Regexp }) {
	c.name = regexp.MustCompile(`^(?:` + names + `)(?:\.exe)?$`)
	c.line = regexp.MustCompile(`(?:(?m:^)[+-]?|[^\w.-])(?:` + names + `)(?:\.exe)?[ \t](?:\\\r?\n|"(?:[^"\\]|\\.)*"|'[^']*'|[^\r\n;|&"'])*["']?[^\s"';|&]*`)
	between := ``
	if apart {
		between = `(?:=|` + gap + `)?`
	}
	c.value = regexp.MustCompile(`((?:^|\s)(?:` + option + `)` + between + `)` + word)
	c.alone = regexp.MustCompile(`^(` + option + `)(=?.*)$`)
	if !apart {
		c.alone = regexp.MustCompile(`^(` + option + `)(.+)$`)
	}
	return c
}

// Mask replaces the secrets in a text of a user, such as a param, a script or an output: the values of names that mean a
// secret, in JSON or in text, passwords and signatures in URLs, and passwords in commands. It knows secrets by their names
// and forms only and is therefore no protection: callers must not show the text at all to users who may not know its secrets.
func Mask(text string) string {
	if masked, ok := maskJSON(text); ok {
		return masked
	}
	if lines := strings.SplitAfter(text, "\n"); len(lines) > 1 && strings.ContainsAny(text, "{[") {
		for i, line := range lines { // such as the output of a program
			bare := strings.TrimRight(line, "\r\n")
			if masked, ok := maskJSON(bare); ok {
				lines[i] = masked + line[len(bare):]
			}
		}
		text = strings.Join(lines, "")
	}
	return maskText(text)
}

// maskJSON masks a text that is a JSON object or array. If it is not, ok is false.
func maskJSON(text string) (masked string, ok bool) {
	trimmed := strings.TrimSpace(text)
	if !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(trimmed))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return "", false
	}
	v, found := maskValue(v)
	if !found && maskText(text) == text {
		return text, true
	}
	// If only the text has a secret, it is the value of a repeated name, which the decoded form lacks.
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return "", false
	}
	return strings.TrimSuffix(out.String(), "\n"), true
}

// MaskJSON masks decoded JSON in place, as Mask does, and reports whether it contained a secret.
func MaskJSON(v any) (masked any, found bool) { return maskValue(v) }

func maskText(s string) string {
	for _, c := range commands {
		s = c.line.ReplaceAllStringFunc(s, func(line string) string { return c.value.ReplaceAllString(line, "${1}"+Masked) })
	}
	for _, p := range textPatterns {
		s = p.ReplaceAllString(s, "${1}"+Masked+"${2}")
	}
	return s
}

// maskValue masks decoded JSON in place and reports whether it contained a secret.
func maskValue(v any) (masked any, found bool) {
	switch v := v.(type) {
	case map[string]any:
		named := false // {"name": "PASSWORD", "value": "…"}
		for _, field := range []string{"name", "key", "Name", "Key"} {
			name, ok := v[field].(string)
			named = named || ok && secretName.MatchString(name)
		}
		for name, value := range v {
			_, structured := value.(map[string]any)
			secret := secretName.MatchString(name) && !(structured && strings.EqualFold(name, "auth")) || named && strings.EqualFold(name, "value")
			if secret && value != nil && value != "" {
				v[name], found = Masked, true
				continue
			}
			inner, some := maskValue(value)
			v[name], found = inner, found || some
		}
	case []any:
		found = maskArguments(v)
		for i, value := range v {
			inner, some := maskValue(value)
			v[i], found = inner, found || some
		}
	case string:
		if text := Mask(v); text != v {
			return text, true
		}
	}
	return v, found
}

// maskArguments masks values that follow their name in a list, such as the arguments of a command.
func maskArguments(list []any) (found bool) {
	words := make([]string, len(list))
	for i := range list {
		words[i], _ = list[i].(string)
	}
	for i := 1; i < len(list); i++ {
		if _, text := list[i].(string); text && words[i] != "" && secretWord.MatchString(words[i-1]) {
			list[i], found = Masked, true
		}
	}
	done := make([]bool, len(commands)) // the first occurrence of a program covers the rest of the list
	for i := range words {
		program := path.Base(words[i])
		for k, c := range commands {
			if done[k] {
				continue
			}
			first := i + 1
			if first < len(words) && c.name.MatchString(program+" "+words[first]) {
				first++
			} else if !c.name.MatchString(program) {
				continue
			}
			done[k] = true
			for n := first; n < len(list); n++ {
				m := c.alone.FindStringSubmatch(words[n])
				switch {
				case m == nil:
				case m[2] != "":
					list[n], found = m[1]+Masked, true
				case n+1 < len(list) && words[n+1] != "":
					list[n+1], found = Masked, true
				}
			}
		}
	}
	return found
}

// Unmask returns the text to store after a user sent one. A user may have read the stored text with its secrets masked. If
// the sent text is this masked form, the stored text stays. Another text with a masked value is refused, because the mask
// would replace the secret.
func Unmask(location, sent, stored string) (string, error) {
	switch {
	case !strings.Contains(sent, Masked) || sent == stored || strings.Contains(stored, Masked):
		return sent, nil
	case stored != "" && sent == Mask(stored):
		return stored, nil
	}
	const what = "contains the masked value " + Masked + "; write the secret itself, or leave the field as you read it to keep the stored one"
	return "", &Error{Code: Invalid, Message: "a secret is masked", Fields: []FieldError{{Location: location, Message: what}}}
}
