package domain

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Masked replaces a secret that is not shown.
const Masked = "•••"

// Words that mark a name as that of a secret, such as db_password, apiKey, X-Auth-Token or Set-Cookie. secretEnds mark a name
// only as its last word, such as X-Vault-Auth or DB_PASS.
const (
	secretWords = `(?:passw(?:or)?d|passphrase|passcode|pwd|secret|token|(?:api|access|private|account|signing|encryption)[_-]?key|credential|creds|authorization|cookie|signature)`
	secretEnds  = `(?:auth|pass|pw|sig)`
	// nameInText matches such a name within a text, starting at its secret word.
	nameInText = `(?:` + secretWords + `[\w.-]*|[_-]` + secretEnds + `|\bsig)`
	// word matches a word of a shell command, with or without quotes.
	word = `(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s"'])+`
	// gap matches the space between two words of a shell command.
	gap = `(?:[ \t]|\\\r?\n)+`
)

// secretName matches the names of secrets in JSON.
var secretName = regexp.MustCompile(`(?i)` + secretWords + `|(?:^|[_.-])` + secretEnds + `$`)

// secretWord matches an argument that is the name of a secret, whose value is the next argument.
var secretWord = regexp.MustCompile(`(?i)^(?:-{0,2}[\w.-]*` + secretWords + `[\w.-]*|[\w.-]*[_-]` + secretEnds + `):?$`)

// nameParts are parts of the names of secrets, in lower case. A text without them has no such name.
var nameParts = []string{"passw", "passphrase", "passcode", "pwd", "secret", "token", "key", "cred", "auth", "cookie", "sig", "-pass", "_pass", "-pw", "_pw"}

// textPatterns find secrets in text. The text between the groups 1 and 2 is masked. Each pattern is only tried on a text that
// contains, in lower case, one of the parts that it needs, because most texts have none. RE2 needs time proportional to the
// text, whatever its content.
var textPatterns = []struct {
	needs   []string
	pattern *regexp.Regexp
}{
	// private keys in PEM
	{[]string{"private key"}, regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?`)},
	// values that are secrets by their form: tokens of Belfry, GitHub, GitLab and Slack, and JSON web tokens
	{[]string{"bf", "gh", "glpat-", "xox", "eyj"}, regexp.MustCompile(`()\b(?:bf[a-z]_[\w-]{43}|gh[a-z]_\w{30,}|github_pat_\w{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*)()`)},
	// headers, up to the end of the line or of the quotes around them
	{[]string{"authorization", "cookie"}, regexp.MustCompile(`(?i)("(?:proxy-)?(?:authorization|(?:set-)?cookie2?)\s*:)[^"\r\n]+()`)},
	{[]string{"authorization", "cookie"}, regexp.MustCompile(`(?i)('(?:proxy-)?(?:authorization|(?:set-)?cookie2?)\s*:)[^'\r\n]+()`)},
	{[]string{"authorization", "cookie"}, regexp.MustCompile(`(?i)((?:^|[^"'\w])(?:proxy-)?(?:authorization|(?:set-)?cookie2?):[ \t]*)[^\r\n]+()`)},
	// blocks of YAML
	{nameParts, regexp.MustCompile(`(?i)(` + nameInText + `["']?:[ \t]*)[|>][+-]?\d*[ \t]*(?:\r?\n[ \t]+[^\r\n]*)+()`)},
	// --name value
	{nameParts, regexp.MustCompile(`(?i)((?:--?[\w-]*(?:` + secretWords + `[\w-]*|[_-]` + secretEnds + `)` + gap + `)+)` + word + `()`)},
	// name: value, up to the end of the line or a comma and a space
	{nameParts, regexp.MustCompile(`(?i)(` + nameInText + `:[ \t]+)[^\s"'&,;|>\\][^\r\n"',;]*(?:[,;][^\s"',;][^\r\n"',;]*)*()`)},
	// name=value, name: value, "name": "value", name := value, also within a quoted JSON
	{nameParts, regexp.MustCompile(`(?i)(` + nameInText + `(?:\\*["'])?\s*(?::=|=>|==?|:)\s*)(?:(?:bearer|basic|digest|token)\s+)?` +
		`(?:\\+"[^"]*"?|"(?:[^"\\]|\\.)*"?|'[^']*'?|[^\s&"'•][^\s&"']*)()`)},
	// "name", "value" in a list
	{nameParts, regexp.MustCompile(`(?i)("-{0,2}[\w.-]*` + secretWords + `[\w.-]*"\s*,\s*)"(?:[^"\\]|\\.)*(?:"(\s*[,\]])|$)`)},
	// <name>value</name>
	{nameParts, regexp.MustCompile(`(?i)(<[\w:.-]*` + secretWords + `[\w:.-]*(?:\s[^<>]*)?>)[^<]+()`)},
	// IDENTIFIED BY 'value', and the lines of a .netrc
	{[]string{"identified", "password"}, regexp.MustCompile(`(?i)((?:identified\s+by|password)\s+)(?:'[^']*'?|"[^"]*"?)()`)},
	{[]string{"login"}, regexp.MustCompile(`(?i)(\blogin\s+\S+\s+password\s+)\S+()`)},
	{[]string{"bearer"}, regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]{8,}()`)},
	// URLs: passwords, tokens as the user, keys and signatures of the query, and chat robots
	{[]string{"://"}, regexp.MustCompile(`(://[^\s/:@"'<>]*:)[^\s/"'<>]*(@)`)},
	{[]string{"://"}, regexp.MustCompile(`(://)[^\s/:@"'<>]{20,}(@)`)},
	{[]string{"sig=", "key=", "signature="}, regexp.MustCompile(`(?i)([?&;](?:sig|key|signature)=)[^\s&"'<>#]+()`)},
	{[]string{"hooks.slack.com", "/bot/v2/hook", "/api/webhooks/", "api.telegram.org"}, regexp.MustCompile(`(?i)((?:hooks\.slack\.com/(?:services|workflows|triggers)|/bot/v2/hook|discord(?:app)?\.com/api/webhooks|api\.telegram\.org)/)[^\s"'<>]+()`)},
	// the data source names of Go's MySQL driver
	{[]string{"@tcp(", "@unix("}, regexp.MustCompile(`(\b[\w.-]+:)[^\s"'<>]+(@(?:tcp|unix)\()`)},
}

// commands are programs with short options for a password.
var commands = []struct {
	needs []string // parts of a text with the program, in lower case
	// name is the program, or its first words; line the program with its arguments, up to the end of the command. value is an
	// option in a line, with the option as group 1; alone is the option as a separate argument, which may include the value.
	name, line, value, alone *regexp.Regexp
}{
	command([]string{"mysql", "mariadb"}, `mysql\w*|mariadb[\w-]*`, `-p`, false),
	command([]string{"sshpass", "login"}, `sshpass|(?:docker|podman|nerdctl|helm(?:\s+registry)?|oras)\s+login`, `-p`, true),
	command([]string{"curl", "wget", "http"}, `curl|wget|http|https|xh`, `-[uUb]|--user|--proxy-user|--auth`, true),
	command([]string{"redis-cli", "valkey-cli"}, `redis-cli|valkey-cli`, `-a`, true),
	command([]string{"ldap"}, `ldap\w+`, `-w`, true),
	command([]string{"mongo"}, `mongo\w*|mongosh`, `-p`, true),
}

// command makes an entry of commands. If apart is set, the value may also be the next argument.
func command(needs []string, names, option string, apart bool) (c struct {
	needs                    []string
	name, line, value, alone *regexp.Regexp
}) {
	c.needs = needs
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
// secret, in JSON or in text, passwords and signatures in URLs, and passwords in commands. Mask recognizes secrets only by
// their names and forms, so it does not replace access control: callers must not show the text to users who may not know its
// secrets.
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
	lower := strings.ToLower(s)
	has := func(parts []string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(lower, part) })
	}
	for _, c := range commands {
		if has(c.needs) {
			s = c.line.ReplaceAllStringFunc(s, func(line string) string { return c.value.ReplaceAllString(line, "${1}"+Masked) })
		}
	}
	for _, p := range textPatterns {
		if has(p.needs) {
			s = p.pattern.ReplaceAllString(s, "${1}"+Masked+"${2}")
		}
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
